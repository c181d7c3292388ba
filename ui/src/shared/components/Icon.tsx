/** Line icons on a 16 px grid. Decorative: the text next to an icon carries the meaning. */

import type { ReactElement } from "react";

const PATHS = {
  check: "M3.5 8.5l3 3 6-7",
  cross: "M4 4l8 8M12 4l-8 8",
  chevronRight: "M6 3.5L10.5 8 6 12.5",
  chevronDown: "M3.5 6L8 10.5 12.5 6",
  chevronLeft: "M10 3.5L5.5 8l4.5 4.5",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  search: "M7 12A5 5 0 107 2a5 5 0 000 10zM10.8 10.8L14 14",
  warning: "M8 2.2l6.3 11.3H1.7zM8 6.5v3.2M8 11.6v.2",
  shield: "M8 1.8l5.2 2v4c0 3.2-2.2 5.4-5.2 6.5-3-1.1-5.2-3.3-5.2-6.5v-4z",
  low: "M8 13.5a5.5 5.5 0 100-11 5.5 5.5 0 000 11zM5.7 8.2l1.7 1.6 3-3.5",
  medium: "M8 13.5a5.5 5.5 0 100-11 5.5 5.5 0 000 11zM8 5.2v3.4M8 10.7v.1",
  high: "M8 2.2l6.3 11.3H1.7zM8 6.5v3.2M8 11.6v.2",
  critical: "M5.4 1.8h5.2l3.6 3.6v5.2l-3.6 3.6H5.4l-3.6-3.6V5.4zM8 4.8v4M8 11v.2",
  question:
    "M8 13.5a5.5 5.5 0 100-11 5.5 5.5 0 000 11zM6.4 6.6c0-1 .7-1.6 1.6-1.6s1.6.6 1.6 1.5c0 1.2-1.6 1.3-1.6 2.5M8 10.9v.1",
  doubt: "M2.5 8a5.5 5.5 0 019.4-3.9M13.5 8a5.5 5.5 0 01-9.4 3.9M12.3 1.8v2.6H9.7M3.7 14.2v-2.6h2.6",
  bell: "M8 2a4 4 0 00-4 4c0 3.5-1.5 4.5-1.5 5.5h11C13.5 10.5 12 9.5 12 6a4 4 0 00-4-4zM6.5 13.5a1.5 1.5 0 003 0",
  clock: "M8 13.5a5.5 5.5 0 100-11 5.5 5.5 0 000 11zM8 5v3.2l2.2 1.4",
  sun: "M8 11a3 3 0 100-6 3 3 0 000 6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  moon: "M13 9.7A5.7 5.7 0 016.3 3 5.6 5.6 0 1013 9.7z",
  system: "M2 3h12v8H2zM5.5 13.5h5M8 11v2.5",
  edit: "M10.8 2.7l2.5 2.5-7.6 7.6-3.2.7.7-3.2z",
  reply: "M6.5 4L2.5 7.7l4 3.7M2.5 7.7h6.3c2.7 0 4.7 1.5 4.7 4.3",
  eye: "M1.5 8S4 3.7 8 3.7 14.5 8 14.5 8 12 12.3 8 12.3 1.5 8 1.5 8zM8 9.9a1.9 1.9 0 100-3.8 1.9 1.9 0 000 3.8z",
  plus: "M8 3v10M3 8h10",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.3 4.5l.5 8.5h6.4l.5-8.5",
  panel: "M2 3h12v10H2zM10 3v10",
  inbox: "M2 9.5l2-6h8l2 6v3.5H2zM2 9.5h3.5c0 1.3 1 2 2.5 2s2.5-.7 2.5-2H14",
  key: "M9.7 9.3a3.3 3.3 0 10-2.6-2.6L2 11.8V14h2.2v-1.5h1.5V11h1.5z",
  user: "M8 8.2a2.7 2.7 0 100-5.4 2.7 2.7 0 000 5.4zM3 13.5c.4-2.3 2.4-3.5 5-3.5s4.6 1.2 5 3.5",
  play: "M5 3.2l7.5 4.8L5 12.8z",
  up: "M8 13V3.5M4 7.2L8 3.2l4 4",
  filter: "M2.5 4h11M4.5 8h7M6.5 12h3",
  keyboard: "M1.5 4h13v8h-13zM4 6.5h.1M6.6 6.5h.1M9.3 6.5h.1M11.9 6.5h.1M5 9.5h6",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }): ReactElement {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
