/**
 * Text that reaches the page without having passed the server's `assent.text`: what a tool wrote
 * down in the demo, or what a person types into an edit. Hidden characters are written out.
 */

const HIDDEN =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]|(?! )\p{Zs}/gu;

export function visible(text: string): string {
  return text.replace(HIDDEN, (char) =>
    char === "\n" || char === "\t" ? char : `⟨U+${char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}
