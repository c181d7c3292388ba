/** The theme (light, dark or system), and settings stored in the browser. */

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
      saveSetting(KEY, next === "system" ? null : next);
    },
  ];
}

/** Store a setting in the browser. Where storage is blocked, it lasts until the page is closed. */
export function saveSetting(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // Storage is blocked.
  }
}

export function loadSetting(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
