import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { makeOpenText } from "../../../../src/daemon/runtime/docker/logFrames.ts"

/** The length of a part of a long line. */
const LONG = 7

/** A console to which the log of an engine and open lines are written. */
const scene = (unlogged = "") => {
  const open = makeOpenText(Buffer.from(unlogged), unlogged === "")
  open.reset()
  const pending = new Map<number, string>()
  let console = unlogged
  const log = (stream: number, text: string) => {
    const { bytes, isApart } = open.logged(stream, Buffer.from(text))
    console += (isApart && console !== "" && !console.endsWith("\n") ? "\n" : "") + bytes.toString()
  }
  return {
    open,
    log,
    console: () => console,
    print: (stream: number, text: string) => {
      open.attached(stream, Buffer.from(text))
      const lines = ((pending.get(stream) ?? "") + text).split(/(?<=\n)/)
      pending.set(stream, lines.at(-1)?.endsWith("\n") === false ? (lines.pop() ?? "") : "")
      for (const line of lines) if (line !== "") log(stream, line)
      // The engine logs a long line in parts.
      const rest = pending.get(stream) ?? ""
      if (rest.length >= LONG) {
        log(stream, rest.slice(0, LONG))
        pending.set(stream, rest.slice(LONG))
      }
    },
    show: () => {
      for (const text of open.take()) console += text.toString()
    },
    end: () => {
      for (const [stream, text] of pending) if (text !== "") log(stream, text)
    }
  }
}

describe("spec 3.10: lines without an end in containers", () => {
  it("the console has the output of each stream once and in order, whenever open lines are shown", () => {
    const step = fc.oneof(
      fc.record({ stream: fc.constant(1), text: fc.stringMatching(/^[ab\n]{1,6}$/) }),
      fc.record({ stream: fc.constant(2), text: fc.stringMatching(/^[xy\n]{1,6}$/) }),
      fc.constant("show")
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const { console, end, open, print, show } = scene()
        for (const each of steps) {
          if (typeof each === "string") show()
          else print(each.stream, each.text)
        }
        const before = console().replaceAll("\n", "")
        show()
        assert.isTrue(console().replaceAll("\n", "").startsWith(before))
        const all = steps.map((each) => (typeof each === "string" ? "" : each.text)).join("")
        assert.strictEqual(console().replaceAll("\n", "").length, all.replaceAll("\n", "").length)
        end()
        const printed = (stream: number) =>
          steps.map((each) => (typeof each !== "string" && each.stream === stream ? each.text : "")).join("")
        const only = (text: string, unwanted: RegExp) => text.replace(unwanted, "")
        assert.strictEqual(only(console(), /[xy\n]/g), only(printed(1), /\n/g))
        assert.strictEqual(only(console(), /[ab\n]/g), only(printed(2), /\n/g))
        assert.strictEqual(open.ahead(), 0)
      })
    )
  })

  it("a prompt is shown once, also by the next service, and its line continues", () => {
    const { log, console, open, print, show } = scene()
    print(1, "Loading\nName> ")
    show()
    show()
    assert.strictEqual(console(), "Loading\nName> ")
    assert.strictEqual(open.ahead(), "Name> ".length)
    log(1, "Name> stop\n")
    assert.strictEqual(console(), "Loading\nName> stop\n")
    const next = scene("Ready> ")
    next.log(1, "Ready> stop\n")
    assert.strictEqual(next.console(), "Ready> stop\n")
  })

  it("a prompt waits for the lines before it", () => {
    const { console, log, open, show } = scene()
    open.attached(1, Buffer.from("Loading\nReady> "))
    show()
    assert.strictEqual(console(), "")
    log(1, "Loading\n")
    show()
    assert.strictEqual(console(), "Loading\nReady> ")
  })

  it("output that differs from what was expected begins a line, and nothing is lost", () => {
    const { console, log } = scene("[a line of this service")
    log(1, "one\n")
    assert.strictEqual(console(), "[a line of this service\none\n")
  })
})
