/** Texts in their shape: SQL and diffs with colours, Markdown rendered next to its text. Only text nodes, no links and no images. */

import { Fragment, type ReactElement, type ReactNode } from "react";
import { shapeOf, sqlPieces } from "./inWords";
import { needsQuotes } from "./ValueView";

export function ShapedText({ name, text }: { name: string; text: string }): ReactElement | null {
  // Quotes show spaces at its ends, which colours cannot.
  const mark = (sign: string) => needsQuotes(text) && <span className="value-quote">{sign}</span>;
  switch (shapeOf(name, text)) {
    case "sql":
      return (
        <span className="value shaped" data-shape="sql">
          {mark("“")}
          {sqlPieces(text).map(([kind, piece], index) =>
            kind ? (
              <span key={index} className={`sql-${kind}`}>
                {piece}
              </span>
            ) : (
              piece
            ),
          )}
          {mark("”")}
        </span>
      );
    case "diff":
      return (
        <span className="value shaped" data-shape="diff">
          {mark("“")}
          {text.split("\n").map((line, index) => (
            <span key={index} className={diffClass(line)}>
              {line || "\u00a0"}
            </span>
          ))}
          {mark("”")}
        </span>
      );
    case "markdown":
      return (
        <div className="beside" data-shape="markdown">
          <span className="value">
            {mark("“")}
            {text}
            {mark("”")}
          </span>
          <div className="markdown" aria-label="As Markdown" role="group">
            <Markdown text={text} />
          </div>
        </div>
      );
    default:
      return null;
  }
}

function diffClass(line: string): string {
  if (/^(\+\+\+|---) /.test(line)) return "diff-line diff-file";
  if (line.startsWith("@@")) return "diff-line diff-place";
  return `diff-line${line.startsWith("+") ? " call-added" : line.startsWith("-") ? " call-removed" : ""}`;
}

/** The Markdown of short messages: headings, lists, quotes, tables, code, emphasis. What it does not know stays text. */
function Markdown({ text }: { text: string }): ReactElement {
  const blocks: ReactNode[] = [];
  const lines = text.split("\n");
  let at = 0;
  const take = (fits: (line: string) => boolean): string[] => {
    const from = at;
    while (at < lines.length && fits(lines[at]!)) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at]!;
    const key = at;
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (line.trim() === "") at += 1;
    else if (heading) {
      at += 1;
      blocks.push(
        <p key={key} className={`md-heading md-h${Math.min(3, heading[1]!.length)}`}>
          <Inline text={heading[2]!} />
        </p>,
      );
    } else if (line.startsWith("```")) {
      at += 1;
      const code = take((each) => !each.startsWith("```"));
      at += 1;
      blocks.push(<pre key={key}>{code.join("\n")}</pre>);
    } else if (/^\s*([-*]|\d+[.)])\s/.test(line)) {
      const items = take((each) => /^\s*([-*]|\d+[.)])\s/.test(each));
      const List = /^\s*\d/.test(line) ? "ol" : "ul";
      blocks.push(
        <List key={key}>
          {items.map((item, index) => (
            <li key={index}>
              <Inline text={item.replace(/^\s*([-*]|\d+[.)])\s+/, "")} />
            </li>
          ))}
        </List>,
      );
    } else if (/^\|.*\|\s*$/.test(line)) {
      const rows = take((each) => /^\|.*\|\s*$/.test(each)).filter((row) => !/^[|\s:-]+$/.test(row));
      blocks.push(
        <table key={key} className="value-rows">
          <tbody>
            {rows.map((row, index) => (
              <tr key={index}>
                {row.trim().slice(1, -1).split("|").map((cell, column) => (
                  <td key={column}>
                    <Inline text={cell.trim()} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>,
      );
    } else if (line.startsWith(">")) {
      blocks.push(
        <blockquote key={key}>
          <Inline text={take((each) => each.startsWith(">")).map((each) => each.replace(/^>\s?/, "")).join(" ")} />
        </blockquote>,
      );
    } else {
      const first = at;
      at += 1;
      take((each) => each.trim() !== "" && !/^(#|```|>|\||\s*([-*]|\d+[.)])\s)/.test(each));
      blocks.push(
        <p key={key}>
          <Inline text={lines.slice(first, at).join(" ")} />
        </p>,
      );
    }
  }
  return <>{blocks}</>;
}

const INLINE = /(`[^`]+`)|(\*\*[^*]+\*\*)|(\*[^*\s][^*]*\*)|(!?\[[^\]]*\]\([^)\s]*\))/g;

function Inline({ text }: { text: string }): ReactElement {
  return (
    <>
      {text.split(INLINE).map((piece, index) => {
        if (!piece) return null;
        if (/^`.+`$/.test(piece)) return <code key={index}>{piece.slice(1, -1)}</code>;
        if (/^\*\*.+\*\*$/.test(piece)) return <strong key={index}>{piece.slice(2, -2)}</strong>;
        if (/^\*.+\*$/.test(piece)) return <em key={index}>{piece.slice(1, -1)}</em>;
        const link = /^(!?)\[([^\]]*)\]\(([^)\s]*)\)$/.exec(piece);
        // Where it leads is shown, and a click leads nowhere. An image would tell its server that it was seen.
        if (link) return <span key={index}>{`${link[1] ? "Image: " : ""}${link[2]} `}<code>{link[3]}</code></span>;
        return <Fragment key={index}>{piece}</Fragment>;
      })}
    </>
  );
}
