import { useEffect, useId, useRef, useState, type ReactElement, type ReactNode } from "react";
import { Button } from "../shared/components/Button";

interface Grid {
  head: string[];
  rows: (string | number)[][];
}

interface PlotProps {
  title: string;
  /** A text alternative for screen readers. */
  description: string;
  table: Grid;
  note?: ReactNode;
  legend?: { name: string; mark: string }[];
  height: number;
  draw: (width: number) => ReactNode;
}

/** A plot with a title, a text alternative, and the same numbers as a table. */
export function Plot({ title, description, table, note, legend, height, draw }: PlotProps): ReactElement {
  const [asTable, setAsTable] = useState(false);
  const [box, width] = useWidth();
  const id = useId();
  return (
    <figure className="card plot">
      <figcaption className="plot-head">
        <h2>{title}</h2>
        <Button small tone="ghost" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {asTable ? "Show as plot" : "Show as table"}
        </Button>
      </figcaption>
      {note && <p className="muted small plot-note">{note}</p>}
      <div ref={box} className="plot-body">
        {asTable ? (
          <GridTable grid={table} label={title} />
        ) : (
          width > 0 && (
            <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-labelledby={`${id}-t ${id}-d`}>
              <title id={`${id}-t`}>{title}</title>
              <desc id={`${id}-d`}>{description}</desc>
              {draw(width)}
            </svg>
          )
        )}
      </div>
      {legend && !asTable && (
        <ul className="legend">
          {legend.map(({ name, mark }) => (
            <li key={name}>
              <svg width="12" height="12" aria-hidden="true" focusable="false">
                <rect className={mark} x="0.5" y="0.5" width="11" height="11" rx="2" />
              </svg>
              {name}
            </li>
          ))}
        </ul>
      )}
    </figure>
  );
}

function GridTable({ grid, label }: { grid: Grid; label: string }): ReactElement {
  return (
    <div className="plot-table" role="region" aria-label={label} tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            {grid.head.map((name, index) => (
              <th key={name} scope="col" className={index ? "number" : undefined}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {grid.rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, place) =>
                place === 0 ? (
                  <th key={place} scope="row" className="cell-head">
                    {cell}
                  </th>
                ) : (
                  <td key={place} className="number">
                    {cell}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The available width. Drawing to size, not scaling, keeps the text as large as elsewhere. */
function useWidth(): [React.RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);
  return [box, width];
}
