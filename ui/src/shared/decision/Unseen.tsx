/** Lists the hidden characters in an editable field, where they cannot be shown in place. */

import type { ReactElement } from "react";
import { hiddenIn } from "../visible";

const MOST = 5;

export function Unseen({ id, text }: { id?: string; text: string }): ReactElement | null {
  const places = hiddenIn(text);
  if (places.length === 0) return null;
  const more = places.length - MOST;
  return (
    <span className="field-unseen" id={id} data-testid="unseen">
      {places.length === 1 ? "1 hidden character" : `${places.length} hidden characters`} in this field:
      {places.slice(0, MOST).map((place, index) => (
        <span key={index} className="field-unseen-place">
          {place.line > 1 && `line ${place.line}: `}
          <code>
            {place.before}
            <mark>{place.code}</mark>
            {place.after}
          </code>
        </span>
      ))}
      {more > 0 && <span className="field-unseen-place">and {more} more</span>}
    </span>
  );
}
