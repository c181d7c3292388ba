/** Number formatting and scales for the plots. */

/** Round integer steps from zero to at least `most`: 0, 5, 10, 15. */
export function ticks(most: number, wanted = 4): number[] {
  if (most <= 0) return [0, 1];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough)!);
  const count = Math.ceil(most / step);
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

/** `0.8 s`, `42 s`, `3 m 5 s`, `2 h 10 m`, `1 d 4 h`. */
export function formatDuration(seconds: number | null): string {
  if (seconds === null) return "–";
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return twoUnits(whole, 60, "m", 1, "s");
  if (whole < 86_400) return twoUnits(whole, 3_600, "h", 60, "m");
  return twoUnits(whole, 86_400, "d", 3_600, "h");
}

function twoUnits(whole: number, big: number, first: string, small: number, second: string): string {
  const left = Math.floor((whole % big) / small);
  return `${Math.floor(whole / big)} ${first}${left ? ` ${left} ${second}` : ""}`;
}

export function percent(part: number, whole: number): string {
  return whole === 0 ? "–" : `${Math.round((100 * part) / whole)} %`;
}

/** `Nov 15`, from an ISO date. */
export function dayName(day: string): string {
  return new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" }).format(
    Date.parse(`${day.slice(0, 10)}T00:00:00Z`),
  );
}

/** On a crowded axis, label every nth item. */
export function labelStep(count: number, width: number, room = 48): number {
  return Math.max(1, Math.ceil((count * room) / Math.max(1, width)));
}

/** The path of a column with rounded upper corners, if it is tall enough for them. */
export function columnPath(x: number, y: number, width: number, height: number, radius = 3): string {
  const r = Math.max(0, Math.min(radius, height, width / 2));
  return `M${x},${y + height}V${y + r}Q${x},${y} ${x + r},${y}H${x + width - r}Q${x + width},${y} ${x + width},${y + r}V${y + height}Z`;
}
