/** For admins: the bots of the server, and how their messages fare. */

import type { ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { thousands } from "../shared/format";
import { Link } from "../shared/router";
import { useResource } from "../shared/useResource";
import { visible } from "../shared/visible";
import { channels, type ChannelHealth } from "./api";
import { STATES, channelWords } from "./words";
import "../history/history.css";

export function ChannelsPage(): ReactElement {
  const health = useResource("channels", channels.health);
  const items = health.data?.items ?? [];
  return (
    <main className="page people notifications">
      <Link to="/notifications" className="people-back">
        <Icon name="chevronLeft" size={14} /> Your notifications
      </Link>
      <div className="page-head">
        <h1>Channels of this server</h1>
        <Button onClick={health.reload}>Check again</Button>
      </div>
      <p className="muted">
        Each platform was asked now whether it knows the bot. Messages that fail are tried again for a day, and delay no
        other channel.
      </p>
      {health.error && <LoadError what="the channels" error={health.error} retry={health.reload} />}
      {health.loading && <Skeleton rows={3} />}
      {health.data && items.length === 0 && (
        <div className="card">
          <EmptyState icon="bell" title="This server has no channels yet" />
        </div>
      )}
      {items.length > 0 && (
        <div className="card people-card">
          <table className="table stacked" aria-label="Channels">
            <thead>
              <tr>
                {["Channel", "State", "Last sent", "Last failed", "Waiting", "Given up"].map((head) => (
                  <th scope="col" key={head}>
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {items.map((item) => (
                <Row key={item.name} item={item} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p className="muted">
        Tokens are read from files or the environment when the server starts, and shown nowhere. To add a bot, pass its
        option to <code>sayso serve</code>, such as <code>--telegram-token-file FILE</code>; test it before with{" "}
        <code>sayso channels test telegram</code>.
      </p>
    </main>
  );
}

function Row({ item }: { item: ChannelHealth }): ReactElement {
  const { name, tone } = STATES[item.state];
  return (
    <tr data-testid="channel">
      <td className="what">
        {channelWords(item.name).name}
        {item.bot && <span className="what-summary wrap">{visible(item.bot)}</span>}
        {item.error && item.state !== "ok" && <span className="what-summary wrap notifications-bad">{visible(item.error)}</span>}
      </td>
      <td>
        <span className={`badge tone-${tone}`}>
          <Icon name={tone === "good" ? "check" : "warning"} size={14} />
          {name}
        </span>
      </td>
      <Moment label="Last sent" at={item.sent_at} />
      <Moment label="Last failed" at={item.failed_at} />
      <td data-label="Waiting">{thousands(item.waiting)}</td>
      <td data-label="Given up">{thousands(item.dead)}</td>
    </tr>
  );
}

function Moment({ label, at }: { label: string; at: string | null }): ReactElement {
  return (
    <td className="nowrap muted" data-label={label}>
      {at ? <Age at={at} /> : "never"}
    </td>
  );
}
