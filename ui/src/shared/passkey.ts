/** Passkeys of this browser. The server makes the options, and checks the answers. */

import { ApiError } from "./api";
import type { PasskeyAnswer, PasskeyOptions } from "./types";

export const passkeysWork =
  typeof PublicKeyCredential !== "undefined" && "parseRequestOptionsFromJSON" in PublicKeyCredential;

const UNSUPPORTED = "This browser has no passkeys here. Use a current one, and open the page by a name, not by an IP address.";

async function answered(begun: PasskeyOptions, ask: () => Promise<Credential | null>): Promise<PasskeyAnswer> {
  if (!passkeysWork) throw new ApiError(0, "NoPasskey", UNSUPPORTED);
  try {
    const credential = await ask();
    return { statement: begun.statement, answer: (credential as PublicKeyCredential).toJSON() };
  } catch (problem) {
    const reason = problem instanceof DOMException && problem.name === "SecurityError" ? UNSUPPORTED : "No passkey was used. Try again.";
    throw new ApiError(0, "NoPasskey", reason);
  }
}

/** Make a passkey. */
export const createPasskey = (begun: PasskeyOptions): Promise<PasskeyAnswer> =>
  answered(begun, () =>
    navigator.credentials.create({
      publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(begun.options as PublicKeyCredentialCreationOptionsJSON),
    }),
  );

/** Sign with a passkey. */
export const signWithPasskey = (begun: PasskeyOptions): Promise<PasskeyAnswer> =>
  answered(begun, () =>
    navigator.credentials.get({
      publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(begun.options as PublicKeyCredentialRequestOptionsJSON),
    }),
  );
