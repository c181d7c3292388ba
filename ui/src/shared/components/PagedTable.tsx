/** A paginated table with its loading, empty and error states. */

import type { ReactElement } from "react";
import type { PagedList } from "../usePagedList";
import { Button } from "./Button";
import { LoadError, Notice, Skeleton } from "./States";

interface Props<T> {
  /** What is listed, for messages: "runs". */
  what: string;
  pages: PagedList<T>;
  /** An empty one is over the buttons. */
  heads: string[];
  testid: string;
  /** Shown if there are no items. */
  empty: ReactElement;
  row: (item: T) => ReactElement;
  /** What the button for the next page says. */
  more?: string;
}

export function PagedTable<T>({ what, pages, heads, testid, empty, row, more = "Show older" }: Props<T>): ReactElement {
  if (pages.error && pages.items.length === 0) {
    return <LoadError what={what} error={pages.error} retry={pages.reload} />;
  }
  if (pages.loading) return <Skeleton rows={6} label={`Loading ${what}`} />;
  if (pages.items.length === 0) return empty;
  return (
    <>
      {pages.error && <Notice tone="warn" title="This list may be out of date">{pages.error.message}</Notice>}
      <div className="card rows">
        <table className="table stacked" data-testid={testid}>
          <thead>
            <tr>
              {heads.map((head) => (
                <th scope="col" key={head}>
                  {head || <span className="sr-only">Actions</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>{pages.items.map(row)}</tbody>
        </table>
      </div>
      {pages.more && (
        <div className="more">
          <Button onClick={pages.loadMore} disabled={pages.busy}>
            {pages.busy ? "Loading…" : more}
          </Button>
        </div>
      )}
    </>
  );
}
