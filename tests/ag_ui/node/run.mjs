// node run.mjs ORIGIN: play every scenario, and print what came of each as JSON.
import { load } from './client.mjs';
import scenarios from './scenarios.mjs';

// The client drops or repairs what the protocol does not describe, with a warning.
const warnings = [];
console.warn = console.error = (...words) => void warnings.push(words.join(' '));

const [origin, only] = process.argv.slice(2);
const outcomes = {};
for (const [name, play] of Object.entries(scenarios(load(origin)))) {
  if (only && name !== only) continue;
  warnings.length = 0;
  try {
    await play();
    outcomes[name] = warnings.filter(words => !words.includes('HTTP 4')).join('\n');
  } catch (error) {
    outcomes[name] = error.stack ?? String(error);
  }
}
console.log(JSON.stringify(outcomes));
process.exit(0); // a scenario that failed may have left a stream open
