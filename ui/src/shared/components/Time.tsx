import type { ReactElement } from "react";
import { ago, countdown, exact, long, short, useNow, useTimesExact } from "../format";

/** Relative time with the exact time as the tooltip, or the other way round if the person prefers it. */
export function Age({ at, bare }: { at: string; bare?: boolean }): ReactElement {
  const now = useNow(5);
  const wholeTime = useTimesExact() && !bare;
  const relative = bare ? short((now - Date.parse(at)) / 1_000) : ago(at, now);
  return (
    <time dateTime={at} title={wholeTime ? relative : exact(at)}>
      {wholeTime ? exact(at) : relative}
    </time>
  );
}

const SOON = 15 * 60;

/** Time left, as a ring and a number. Hidden while there are more than 15 minutes left, unless `always`. */
export function Countdown({ until, always }: { until: string | null; always?: boolean }): ReactElement | null {
  const now = useNow();
  if (!until) return null;
  const left = (Date.parse(until) - now) / 1_000;
  if (left > SOON && !always) return null;
  if (left <= 0) return <span className="countdown countdown-over">expired</span>;
  const part = Math.min(1, left / SOON);
  const around = 2 * Math.PI * 5;
  return (
    <span
      className={`countdown${left < 120 ? " countdown-soon" : left > SOON ? " countdown-far" : ""}`}
      title={`Expires ${exact(until)}`}
    >
      <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true" focusable="false">
        <circle className="ring-back" cx="7" cy="7" r="5" />
        <circle
          className="ring"
          cx="7"
          cy="7"
          r="5"
          strokeDasharray={`${around * part} ${around}`}
          transform="rotate(-90 7 7)"
        />
      </svg>
      <span className="sr-only">expires in {long(left)}</span>
      <span aria-hidden="true">{countdown(left)}</span>
    </span>
  );
}
