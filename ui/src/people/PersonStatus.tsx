import type { ReactElement } from "react";
import { exact, useNow } from "../shared/format";
import { visible } from "../shared/visible";
import type { Person } from "./api";

/** `Nov 17, 14:05` */
export function shortTime(iso: string): string {
  return exact(iso).replace(/, \d{4}, (\d+:\d+).*/, ", $1");
}

export function isAway(person: Person, now: number): boolean {
  return person.stand_in !== null && person.away_until !== null && now < Date.parse(person.away_until);
}

/** Active, away with the stand-in, or removed. */
export function PersonStatus({ person }: { person: Person }): ReactElement {
  const now = useNow(30);
  if (person.status === "removed") return <span className="badge tone-bad">Removed</span>;
  if (!isAway(person, now)) return <span className="badge tone-good">Active</span>;
  return (
    <span className="badge risk-medium" title={exact(person.away_until!)}>
      Away until {shortTime(person.away_until!)}: {visible(person.stand_in!)} decides
    </span>
  );
}
