/** "What really ran": the calls that the demo's tools logged when they ran. */

import { useState, type ReactElement } from "react";
import { ApiError, api } from "../api";
import { useChanges } from "../live";
import { useResource } from "../useResource";
import { useMe } from "../session";
import { clockSeconds, exact } from "../format";
import type { Effect } from "../types";
import { visible } from "../visible";
import { Button } from "./Button";
import { Icon } from "./Icon";
import { toast } from "./Toasts";

function Row({ effect }: { effect: Effect }): ReactElement {
  return (
    <tr>
      <td className="mono">{visible(effect.tool)}</td>
      <td className="mono wrap">{visible(JSON.stringify(effect.args))}</td>
      <td className="nowrap">
        <time dateTime={effect.at} title={exact(effect.at)}>
          {clockSeconds(effect.at)}
        </time>
      </td>
    </tr>
  );
}

/** Renders nothing outside the demo. */
export function Effects({ open: first = false }: { open?: boolean }): ReactElement | null {
  const { demo } = useMe();
  const [open, setOpen] = useState(first);
  const effects = useResource(demo ? "effects" : null, api.effects);
  useChanges(() => effects.reload(), 400);
  if (!demo) return null;
  const rows = effects.data ?? [];
  const empty = async () => {
    try {
      await api.clearEffects();
      effects.reload();
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), "bad");
    }
  };
  return (
    <section className="effects" aria-label="What really ran" data-testid="effects">
      <div className="effects-head">
        <button type="button" className="disclosure" aria-expanded={open} onClick={() => setOpen(!open)}>
          <Icon name={open ? "chevronDown" : "chevronRight"} size={14} />
          What really ran
          <span className="count">{rows.length}</span>
        </button>
        {open && rows.length > 0 && (
          <Button small tone="ghost" onClick={() => void empty()}>
            Clear list
          </Button>
        )}
      </div>
      {open && rows.length === 0 && (
        <p className="muted effects-empty">Nothing has run yet. Approved calls appear here after they run.</p>
      )}
      {open && rows.length > 0 && (
        <div className="effects-rows" role="region" aria-label="Executions" tabIndex={0}>
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Tool</th>
                <th scope="col">Arguments</th>
                <th scope="col">Time</th>
              </tr>
            </thead>
            <tbody>{rows.map((effect, index) => <Row key={index} effect={effect} />).reverse()}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}
