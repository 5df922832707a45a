import { blueprintFile, consoleServer, softwareFile } from "../support/definitions.ts"

/** A line that would move the cursor, clear the screen, set the title, open a link and run a script. */
const hostile =
  "\\033[2J\\033[H\\033]0;owned\\007\\033]52;c;b3duZWQ=\\007\\033]8;;javascript:alert(1)\\007link\\033]8;;\\007 <img src=x onerror=alert(1)> \\033[31mred\\033[0m \\033[38;2;10;200;30mgreen\\033[0m end"

/** A server that answers its console, one whose output is hostile, and one whose program does not exist. */
export const games = {
  software: {
    "absent.yml": "software: { id: absent, invocation: no-such-program, online-signal: ready }",
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "hostile.yml": softwareFile("hostile", {
      files: { "server.sh": `printf 'first line\\n${hostile}\\n'\n${consoleServer}` }
    })
  },
  blueprints: {
    "absent.yml": blueprintFile("absent", "absent"),
    "kept.yml": blueprintFile("kept", "game"),
    "hostile.yml": blueprintFile("hostile", "hostile")
  }
}
