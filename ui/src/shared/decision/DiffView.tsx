import type { ReactElement } from "react";
import type { DiffLine } from "../types";
import { lineDiff, type LineDiff } from "./diff";

function Side({ lines, side }: { lines: LineDiff[]; side: "removed" | "added" }): ReactElement {
  const Tag = side === "removed" ? "del" : "ins";
  const own = lines.filter((line) => line.kind === side || line.kind === "same");
  return (
    <div className={`diff-side diff-${side}`}>
      {own.map((line, index) => (
        <div key={index} className={line.kind === "same" ? "diff-line" : "diff-line diff-changed"}>
          {line.pieces.map((piece, at) =>
            piece.changed ? <Tag key={at}>{piece.text}</Tag> : <span key={at}>{piece.text}</span>,
          )}
          {line.pieces.length === 0 && "\u00a0"}
        </div>
      ))}
      {own.length === 0 && <div className="muted diff-line">{side === "removed" ? "(not set)" : "(removed)"}</div>}
    </div>
  );
}

/** Changes per field, side by side. The server has already made hidden characters visible. */
export function DiffView({ diff }: { diff: DiffLine[] }): ReactElement {
  if (diff.length === 0) return <p className="muted">No changes yet.</p>;
  return (
    <ul className="diff" aria-label="Changes" data-testid="diff">
      {diff.map((change) => {
        const lines = lineDiff(change.before, change.after);
        return (
          <li key={change.path}>
            <p className="diff-path mono">{change.path}</p>
            <div className="diff-sides">
              <Side lines={lines} side="removed" />
              <Side lines={lines} side="added" />
            </div>
          </li>
        );
      })}
    </ul>
  );
}
