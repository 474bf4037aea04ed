// What a script of a client is made of; see features.py.

export const [SMOLLM2, SCRIPTED] = process.argv.slice(2, 4); // without /v1
export const MODEL = "smollm2"; // the name of the model on both servers
export const KEY = "none"; // the servers want no key, but some clients do

const features = [];

// Adds a function, plain or async, that throws if the feature does not work.
export const feature = (name, run) => features.push([name, run]);

export async function main() {
  for (const [name, run] of features) {
    const line = { feature: name, ok: true, error: null };
    try {
      await run();
    } catch (e) {
      console.error(e);
      Object.assign(line, { ok: false, error: String(e).slice(0, 500) });
    }
    console.log("\n" + JSON.stringify(line));
  }
  process.exit(0); // a client may keep connections open
}
