/** A coding agent's call: a command with its directory, a diff, or a URL. */

import type { ReactElement } from "react";
import type { Change, CodingCall } from "./codingCall";
import { lineDiff } from "./diff";

function WorkingDirectory({ cwd }: { cwd: string | null }): ReactElement | null {
  if (cwd === null) return null;
  return (
    <p className="muted small" data-testid="call-cwd">
      in <span className="mono">{cwd}</span>
    </p>
  );
}

function ChangeDiff({ change }: { change: Change }): ReactElement {
  const lines = lineDiff(change.before, change.after);
  return (
    <div className="call-diff" data-testid="call-diff">
      {lines.map((line, index) => {
        const Tag = line.kind === "removed" ? "del" : line.kind === "added" ? "ins" : "span";
        const sign = { removed: "−", added: "+", same: " " }[line.kind];
        return (
          <div key={index} className={`call-line call-${line.kind}`}>
            <span aria-hidden="true" className="call-sign">
              {sign}
            </span>
            <Tag>{line.pieces.map((piece) => piece.text).join("") || "\u00a0"}</Tag>
          </div>
        );
      })}
    </div>
  );
}

export function CodingCallView({ call }: { call: CodingCall }): ReactElement {
  if (call.kind === "command") {
    return (
      <figure className="call" data-testid="call-command">
        <pre className="args-pre wrap">{call.command}</pre>
        <WorkingDirectory cwd={call.cwd} />
      </figure>
    );
  }
  if (call.kind === "fetch") {
    return (
      <figure className="call" data-testid="call-fetch">
        <p className="mono wrap">{call.url}</p>
        <p className="muted small">
          {call.host ? (
            <>
              from <strong className="mono">{call.host}</strong>
            </>
          ) : (
            "This is not a valid URL."
          )}
        </p>
      </figure>
    );
  }
  const whole = call.changes.every((change) => change.before === null);
  return (
    <figure className="call" data-testid="call-edit">
      <p>
        {whole ? "Write the whole file" : "Change"} <strong className="mono wrap">{call.path}</strong>
      </p>
      <WorkingDirectory cwd={call.cwd} />
      {call.changes.map((change, index) => (
        <ChangeDiff key={index} change={change} />
      ))}
    </figure>
  );
}
