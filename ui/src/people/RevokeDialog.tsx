import type { ReactElement } from "react";
import { visible } from "../shared/visible";
import { people, type Credential } from "./api";
import { TakeAway, credentialLine } from "./TakeAway";

interface Props {
  credential: Credential;
  onDone: () => void;
  onClose: () => void;
}

const TITLES: Record<Credential["kind"], [title: string, verb: string, done: string]> = {
  session: ["Sign out this browser?", "Sign out", "Signed out"],
  token: ["Revoke this token?", "Revoke token", "Token revoked"],
  passkey: ["Remove this passkey?", "Remove passkey", "Passkey removed"],
  link: ["Revoke this sign-in link?", "Revoke link", "Sign-in link revoked"],
  chat: ["Unlink this chat account?", "Unlink account", "Chat account unlinked"],
  code: ["Revoke this linking code?", "Revoke code", "Linking code revoked"],
  push: ["Stop push messages to this browser?", "Stop messages", "Push messages stopped"],
};

/** Ends one credential of a person, with the sessions that it opened. */
export function RevokeDialog({ credential, onDone, onClose }: Props): ReactElement {
  const [title, verb, done] = TITLES[credential.kind];
  return (
    <TakeAway title={title} verb={verb} keep="Keep" done={done} act={() => people.revoke(credential.id)} onDone={onDone} onClose={onClose}>
      <p className="wrap">
        {credentialLine(credential)}, of <strong>{visible(credential.person)}</strong>.
      </p>
      <p className="muted">
        {credential.kind === "session"
          ? "Its pages stop within two seconds. Tokens and other sessions stay."
          : "The sessions that it opened end, too. Pages and programs that use them stop within two seconds."}
      </p>
      {credential.current && <p>This is the session of this page: you will have to sign in again.</p>}
    </TakeAway>
  );
}
