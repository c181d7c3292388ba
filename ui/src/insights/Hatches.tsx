import type { ReactElement } from "react";

/** Stripe patterns that tell bars apart without colour. Defined once for all plots of the page. */
export function Hatches(): ReactElement {
  return (
    <svg className="sr-only" width="0" height="0" aria-hidden="true" focusable="false">
      <defs>
        {["warn", "accent"].map((name) => (
          <pattern key={name} id={`hatch-${name}`} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect className={`hatch-back hatch-${name}`} width="5" height="5" />
            <rect className={`hatch-line hatch-${name}`} width="2.2" height="5" />
          </pattern>
        ))}
      </defs>
    </svg>
  );
}
