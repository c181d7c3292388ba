/** Who is signed in, for the parts of the page that depend on it. */

import { createContext, useContext } from "react";
import type { Me } from "./types";

export const MeContext = createContext<Me | null>(null);

export function useMe(): Me {
  const me = useContext(MeContext);
  if (!me) throw new Error("useMe is for pages that are drawn after sign-in");
  return me;
}
