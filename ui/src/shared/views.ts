/** Saved views: the filters of the inbox under a name, kept in this browser for each person. */

import { useState } from "react";
import { loadSetting, saveSetting } from "./theme";

export interface View {
  name: string;
  /** The query of the inbox's address. */
  query: string;
}

export function useViews(person: string): [View[], (views: View[]) => void] {
  const key = `sayso.views.${person}`;
  const [views, setViews] = useState<View[]>(() => {
    try {
      return JSON.parse(loadSetting(key) ?? "[]") as View[];
    } catch {
      return [];
    }
  });
  return [
    views,
    (next) => {
      setViews(next);
      saveSetting(key, next.length ? JSON.stringify(next) : null);
    },
  ];
}
