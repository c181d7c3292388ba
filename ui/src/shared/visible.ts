/**
 * Make hidden characters visible in text that has not passed through the server's `sayso.text`, such
 * as the results of demo tools, or text typed into an edit.
 */

const HIDDEN =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufffc\u{13441}\u{13442}\u{16fe4}\u{1d159}\ufe00-\ufe0f\u{e0100}-\u{e01ef}]|(?! )\p{Zs}/gu;

const isHidden = (char: string): boolean => char !== "\n" && char !== "\t";

export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => (isHidden(char) ? `⟨${codeOf(char)}⟩` : char));
}

function codeOf(char: string): string {
  return `U+${char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`;
}

export interface HiddenCharacter {
  /** Line number, starting at 1. */
  line: number;
  code: string;
  /** The text just before and after it. */
  before: string;
  after: string;
}

const AROUND = 16;

/** The hidden characters of a text. For text in an editable field, which cannot be changed to show them. */
export function findHiddenCharacters(text: string): HiddenCharacter[] {
  return text.split("\n").flatMap((line, index) =>
    [...line.matchAll(HIDDEN)]
      .filter(([char]) => isHidden(char))
      .map(({ 0: char, index: at }) => ({
        line: index + 1,
        code: codeOf(char),
        before: visible([...line.slice(0, at)].slice(-AROUND).join("")),
        after: visible([...line.slice(at + char.length)].slice(0, AROUND).join("")),
      })),
  );
}
