import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { launchPlan } from "../../../src/daemon/runtime/launchPlan.ts"
import { specOf } from "../support.ts"

const planOf = (invocation: string, env: Record<string, string> = {}) =>
  Result.getOrThrow(
    launchPlan(specOf({ process: { invocation }, definition: { env, limits: { memory_limit: 512 } } }))
  )

describe("spec 4.8: the command line of a server", () => {
  it("`STARTUP` is the command line with its placeholders replaced", () => {
    const { argv, env } = planOf('java -Xmx{{SERVER_MEMORY}}M -jar "{{env.JAR}}" -p {{SERVER_PORT}}', {
      JAR: "my server.jar"
    })
    assert.deepStrictEqual([...argv], ["java", "-Xmx512M", "-jar", "my server.jar", "-p", "25565"])
    assert.strictEqual(env.STARTUP, 'java -Xmx512M -jar "my server.jar" -p 25565')
  })

  it("a variable `STARTUP` of the blueprint stays, and a long command line is left out", () => {
    assert.strictEqual(planOf("run", { STARTUP: "mine" }).env.STARTUP, "mine")
    assert.notProperty(planOf("run {{LONG}} {{LONG}}", { LONG: "x".repeat(20_000) }).env, "STARTUP")
  })
})
