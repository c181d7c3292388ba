/** Light, dark, or as the system has it; kept in the browser. */

import { useState } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "sayso.theme";

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState<Theme>(() => (document.documentElement.dataset.theme as Theme) ?? "system");
  return [
    theme,
    (next) => {
      setTheme(next);
      if (next === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = next;
      remember(KEY, next === "system" ? null : next);
    },
  ];
}

/** Small choices of this browser; storage may be closed to us, and then they last for the page. */
export function remember(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // The choice still holds until the page is closed.
  }
}

export function recall(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
