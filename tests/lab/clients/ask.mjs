// JavaScript: fetch as Node and browsers have it, and OpenAI's own client where NODE_PATH has the package "openai".

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { BASE_URL, KEY, MODEL } = process.env;
const messages = [{ role: "user", content: "Hi." }];

async function told(client, version, call, ask) {
  let problem = null;
  try {
    if (!(await ask())) problem = "an empty answer";
  } catch (error) {
    problem = String(error);
  }
  console.log(JSON.stringify({ client, version, call, problem }));
}

function post(stream) {
  return fetch(`${BASE_URL}/v1/chat/completions`, {
    method: "POST",
    headers: { Authorization: `Bearer ${KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify({ model: MODEL, max_tokens: 4, stream, messages }),
  });
}

await told("fetch", process.version, "stream false", async () =>
  (await (await post(false)).json()).choices[0].message.content);
await told("fetch", process.version, "stream true", async () => {
  let text = "";
  const decoder = new TextDecoder();
  for await (const part of (await post(true)).body) text += decoder.decode(part, { stream: true });
  return text.includes('"content"') && text.trimEnd().endsWith("data: [DONE]");
});

const require = createRequire(import.meta.url);
let OpenAI = null;
try {
  OpenAI = require("openai");
} catch {
  // not installed
}
if (OpenAI !== null) {
  const { version } = JSON.parse(readFileSync(`${process.env.NODE_PATH}/openai/package.json`));
  const client = new OpenAI({ baseURL: BASE_URL + "/v1", apiKey: KEY });
  await told("openai-node", version, "stream false", async () =>
    (await client.chat.completions.create({ model: MODEL, max_tokens: 4, messages })).choices[0].message.content);
  await told("openai-node", version, "stream true", async () => {
    let text = "";
    const chunks = await client.chat.completions.create({ model: MODEL, max_tokens: 4, messages, stream: true });
    for await (const chunk of chunks) text += chunk.choices[0]?.delta?.content ?? "";
    return text;
  });
  await told("openai-node", version, "wrong key", async () => {
    try {
      await new OpenAI({ baseURL: BASE_URL + "/v1", apiKey: "pdm_wrong" }).models.list();
    } catch (error) {
      return error instanceof OpenAI.AuthenticationError;
    }
    return false;
  });
}
