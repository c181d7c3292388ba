import { useState } from "react";
import { ApiError } from "../shared/api";

export interface Action {
  busy: boolean;
  /** The server's sentence about the last failure. */
  error: string;
  run: (work: () => Promise<void>) => Promise<void>;
}

/** Something that is sent to the server from a form or a dialog. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const run = async (work: () => Promise<void>) => {
    setBusy(true);
    setError("");
    try {
      await work();
    } catch (problem) {
      setError(problem instanceof ApiError ? problem.message : String(problem));
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, run };
}
