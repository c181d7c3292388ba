import { useState, type ReactElement } from "react";
import { useAction } from "../people/useAction";
import { Button } from "../shared/components/Button";
import { LoadError, Skeleton } from "../shared/components/States";
import { toast } from "../shared/components/Toasts";
import { exact } from "../shared/format";
import { useResource } from "../shared/useResource";
import { notices, type Notices } from "./api";
import { timeZones } from "./words";

/** When messages reach you, in every channel. */
export function QuietHours(): ReactElement {
  const stored = useResource("notices", notices.get);
  return (
    <section className="card people-card" aria-label="When messages reach you">
      <header>
        <div className="notifications-what">
          <h2>When messages reach you</h2>
          <p className="muted">In every channel. Other people get theirs when they have set it.</p>
        </div>
      </header>
      {stored.error && <LoadError what="your quiet hours" error={stored.error} retry={stored.reload} />}
      {stored.loading && <Skeleton rows={2} />}
      {stored.data && <Form key={JSON.stringify(stored.data)} stored={stored.data} onSaved={stored.set} />}
    </section>
  );
}

function Form({ stored, onSaved }: { stored: Notices; onSaved: (now: Notices) => void }): ReactElement {
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const [quiet, setQuiet] = useState(stored.quiet_from !== "");
  const [from, setFrom] = useState(stored.quiet_from || "22:00");
  const [until, setUntil] = useState(stored.quiet_until || "07:00");
  const [zone, setZone] = useState(stored.quiet_from ? stored.zone : local);
  const [away, setAway] = useState(stored.only_away);
  const { busy, error, run } = useAction();
  const send = async () => {
    const hours = quiet ? { quiet_from: from, quiet_until: until, zone } : { quiet_from: "", quiet_until: "", zone: stored.zone };
    onSaved(await notices.set({ ...hours, only_away: away }));
    toast("Saved", "good");
  };
  return (
    <form
      className="notifications-form"
      onSubmit={(event) => {
        event.preventDefault();
        void run(send);
      }}
    >
      <label className="check">
        <input type="checkbox" checked={quiet} onChange={(event) => setQuiet(event.target.checked)} />
        <span>
          Quiet hours
          <span className="field-hint">Messages wait, and become one when they end. Only critical requests that have escalated come at once.</span>
        </span>
      </label>
      {quiet && (
        <div className="notifications-hours">
          <label className="field">
            <span className="field-label">From</span>
            <input type="time" required value={from} onChange={(event) => setFrom(event.target.value)} />
          </label>
          <label className="field">
            <span className="field-label">Until</span>
            <input type="time" required value={until} onChange={(event) => setUntil(event.target.value)} />
          </label>
          <label className="field">
            <span className="field-label">Time zone</span>
            <select value={zone} onChange={(event) => setZone(event.target.value)}>
              {timeZones(zone).map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        </div>
      )}
      {stored.quiet_until_now && <p className="muted">These are quiet hours, until {exact(stored.quiet_until_now)}.</p>}
      <label className="check">
        <input type="checkbox" checked={away} onChange={(event) => setAway(event.target.checked)} />
        <span>
          Only while I am away
          <span className="field-hint">Messages wait as long as you use this web app: until two minutes after your last click.</span>
        </span>
      </label>
      {error && (
        <p className="field-error people-error" role="alert">
          {error}
        </p>
      )}
      <div>
        <Button type="submit" tone="primary" disabled={busy}>
          Save
        </Button>
      </div>
    </form>
  );
}
