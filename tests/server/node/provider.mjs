// A real OpenID provider for tests. It prints its issuer, then reads the URL of its client, and prints "ready".
// Arguments: the client's secret, and a file with the groups of each person.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createInterface } from "node:readline/promises";
import Provider from "oidc-provider";

const [secret, groups] = process.argv.slice(2);
const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
console.log(issuer);
const app = await createInterface({ input: process.stdin }).question("");

const client = {
  client_id: "sayso",
  client_secret: secret,
  redirect_uris: [`${app}/api/login/oidc/callback`],
  backchannel_logout_uri: `${app}/api/login/oidc/logout`,
  backchannel_logout_session_required: true,
};
const provider = new Provider(issuer, {
  clients: [client],
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
  features: { devInteractions: { enabled: true }, backchannelLogout: { enabled: true } },
  fetch: (url, { dispatcher, ...options }) => fetch(url, options), // its own refuses loopback
  pkce: { required: () => true },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      preferred_username: id,
      groups: JSON.parse(readFileSync(groups, "utf8"))[id] ?? [],
      email: `${id}@example.com`,
      email_verified: true,
    }),
  }),
});
server.on("request", provider.callback());
console.log("ready");
