// node run.mjs VERSION ORIGIN: play every scenario, and print what came of each as JSON.
import { load } from './client.mjs';
import scenarios from './scenarios.mjs';

const [version, origin, only] = process.argv.slice(2);
const all = scenarios(await load(version, origin));
const outcomes = {};
for (const [name, play] of Object.entries(all)) {
  if (only && name !== only) continue;
  try {
    await play();
    outcomes[name] = '';
  } catch (error) {
    outcomes[name] = error.stack ?? String(error);
  }
}
console.log(JSON.stringify(outcomes));
process.exit(0); // a scenario that failed may have left a stream open
