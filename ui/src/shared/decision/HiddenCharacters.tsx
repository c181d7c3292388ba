/** Lists the hidden characters in an editable field, where they cannot be shown in place. */

import type { ReactElement } from "react";
import { findHiddenCharacters } from "../visible";

const MAX_SHOWN = 5;

export function HiddenCharacters({ id, text }: { id?: string; text: string }): ReactElement | null {
  const characters = findHiddenCharacters(text);
  if (characters.length === 0) return null;
  const more = characters.length - MAX_SHOWN;
  return (
    <span className="field-hidden" id={id} data-testid="unseen">
      {characters.length === 1 ? "1 hidden character" : `${characters.length} hidden characters`} in this field:
      {characters.slice(0, MAX_SHOWN).map((character, index) => (
        <span key={index} className="field-hidden-character">
          {character.line > 1 && `line ${character.line}: `}
          <code>
            {character.before}
            <mark>{character.code}</mark>
            {character.after}
          </code>
        </span>
      ))}
      {more > 0 && <span className="field-hidden-character">and {more} more</span>}
    </span>
  );
}
