/** The saved views of a person, with how many requests wait in each. */

import { useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { Button, IconButton } from "../shared/components/Button";
import { FormDialog } from "../people/FormDialog";
import { counted } from "../shared/format";
import { navigate } from "../shared/router";
import { toast } from "../shared/components/Toasts";
import { FILTERS, filtersOf, queryOf, useViews } from "../shared/views";

export function Views({ query }: { query: URLSearchParams }): ReactElement | null {
  const views = useViews();
  const [naming, setNaming] = useState(false);
  const [name, setName] = useState("");
  const here = new URLSearchParams(FILTERS.flatMap((each) => (query.get(each) ? [[each, query.get(each)!]] : []))).toString();
  const items = (views.data ?? []).map((view) => ({ ...view, query: queryOf(view) }));
  const known = items.some((view) => view.query === here);
  if (items.length === 0 && !here) return null;
  const title = name.trim();
  const remove = (view: string) =>
    void api
      .removeView(view)
      .catch((error: unknown) => toast(error instanceof Error ? error.message : String(error), "bad"))
      .then(views.reload);
  return (
    <nav className="views" aria-label="Saved views">
      {items.map((view) => (
        <span key={view.name} className="view">
          <button
            type="button"
            className="filter-chip"
            aria-pressed={view.query === here}
            onClick={() => navigate(view.query === here ? "/inbox" : `/inbox?${view.query}`)}
          >
            {view.name} <span className="count">{counted(view)}</span>
          </button>
          {view.query === here && (
            <IconButton icon="cross" label={`Remove the view ${view.name}`} onClick={() => remove(view.name)} />
          )}
        </span>
      ))}
      {here && !known && views.data && (
        <Button small icon="plus" onClick={() => setNaming(true)}>
          Save view
        </Button>
      )}
      {naming && (
        <FormDialog
          title="Save this view"
          verb="Save view"
          ready={title !== ""}
          send={async () => {
            await api.saveView(title, filtersOf(query));
            views.reload();
            setNaming(false);
            setName("");
          }}
          onClose={() => setNaming(false)}
        >
          <label className="field">
            <span className="field-label">Name</span>
            <input data-autofocus value={name} maxLength={40} autoComplete="off" onChange={(event) => setName(event.target.value)} />
          </label>
        </FormDialog>
      )}
    </nav>
  );
}
