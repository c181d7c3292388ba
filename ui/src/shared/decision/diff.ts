/** Line diffs, with the changed part of each line. */

export interface Piece {
  text: string;
  changed: boolean;
}

export interface LineDiff {
  kind: "same" | "removed" | "added";
  pieces: Piece[];
}

/** Longer texts are not compared, because that would take too long; both are shown whole. */
const MAX_LINES = 1_500;

/** The longest common subsequence of lines, as pairs of indexes. */
function commonLines(before: string[], after: string[]): [number, number][] {
  const width = after.length + 1;
  const table = new Uint32Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        before[i] === after[j]
          ? table[(i + 1) * width + j + 1]! + 1
          : Math.max(table[(i + 1) * width + j]!, table[i * width + j + 1]!);
    }
  }
  const pairs: [number, number][] = [];
  let i = 0;
  let j = 0;
  while (i < before.length && j < after.length) {
    if (before[i] === after[j]) pairs.push([i++, j++]);
    else if (table[(i + 1) * width + j]! >= table[i * width + j + 1]!) i += 1;
    else j += 1;
  }
  return pairs;
}

/** Split two lines into their common prefix and suffix and the changed part between. */
export function diffWithinLine(before: string, after: string): [Piece[], Piece[]] {
  const a = [...before];
  const b = [...after];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail])
    tail += 1;
  const cut = (chars: string[]): Piece[] =>
    [
      { text: chars.slice(0, head).join(""), changed: false },
      { text: chars.slice(head, chars.length - tail).join(""), changed: true },
      { text: chars.slice(chars.length - tail).join(""), changed: false },
    ].filter((piece) => piece.text !== "");
  return [cut(a), cut(b)];
}

const whole = (text: string, changed: boolean): Piece[] => [{ text, changed }];

/** The lines of both texts, in order. */
export function lineDiff(before: string | null, after: string | null): LineDiff[] {
  const old = before === null ? [] : before.split("\n");
  const fresh = after === null ? [] : after.split("\n");
  const pairs = old.length > MAX_LINES || fresh.length > MAX_LINES ? [] : commonLines(old, fresh);
  const out: LineDiff[] = [];
  let i = 0;
  let j = 0;
  for (const [nextI, nextJ] of [...pairs, [old.length, fresh.length] as [number, number]]) {
    out.push(...changedBlock(old.slice(i, nextI), fresh.slice(j, nextJ)));
    if (nextI < old.length) out.push({ kind: "same", pieces: whole(old[nextI]!, false) });
    i = nextI + 1;
    j = nextJ + 1;
  }
  return out;
}

function changedBlock(old: string[], fresh: string[]): LineDiff[] {
  const alike = old.length === fresh.length;
  const pairs = alike ? old.map((line, index) => diffWithinLine(line, fresh[index]!)) : [];
  return [
    ...old.map((line, index): LineDiff => ({ kind: "removed", pieces: pairs[index]?.[0] ?? whole(line, true) })),
    ...fresh.map((line, index): LineDiff => ({ kind: "added", pieces: pairs[index]?.[1] ?? whole(line, true) })),
  ];
}
