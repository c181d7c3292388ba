/** The saved views of a person, with how many requests wait in each. */

import { useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { Button, IconButton } from "../shared/components/Button";
import { FormDialog } from "../people/FormDialog";
import { thousands } from "../shared/format";
import { useChanges } from "../shared/live";
import { useResource } from "../shared/useResource";
import { navigate } from "../shared/router";
import { useMe } from "../shared/session";
import { useViews, type View } from "../shared/views";
import { FILTERS } from "./Filters";
import { SOON } from "./order";

/** The filters of a view as the API takes them. */
function filtersOf(view: View): Record<string, string | number | boolean | null> {
  const query = new URLSearchParams(view.query);
  const { mine, expiring, ...rest } = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]));
  return { ...rest, status: "pending", mine: mine != null, expires_within: expiring == null ? null : SOON };
}

function Count({ view }: { view: View }): ReactElement | null {
  const counted = useResource(view.query, (signal) => api.groups(filtersOf(view), signal));
  useChanges(() => counted.reload(), 1_000);
  return counted.data ? <span className="count">{thousands(counted.data.count)}</span> : null;
}

export function Views({ query }: { query: URLSearchParams }): ReactElement | null {
  const me = useMe();
  const [views, save] = useViews(me.name);
  const [naming, setNaming] = useState(false);
  const [name, setName] = useState("");
  const here = new URLSearchParams(FILTERS.flatMap((each) => (query.get(each) ? [[each, query.get(each)!]] : []))).toString();
  const known = views.some((view) => view.query === here);
  if (views.length === 0 && !here) return null;
  const title = name.trim();
  return (
    <nav className="views" aria-label="Saved views">
      {views.map((view) => (
        <span key={view.query} className="view">
          <button
            type="button"
            className="filter-chip"
            aria-pressed={view.query === here}
            onClick={() => navigate(view.query === here ? "/inbox" : `/inbox?${view.query}`)}
          >
            {view.name} <Count view={view} />
          </button>
          {view.query === here && (
            <IconButton icon="cross" label={`Remove the view ${view.name}`} onClick={() => save(views.filter((each) => each !== view))} />
          )}
        </span>
      ))}
      {here && !known && (
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
            save([...views, { name: title, query: here }]);
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
