import { assert, describe, it } from "@effect/vitest"
import { unpublished } from "../../../../src/daemon/runtime/docker/containerOptions.ts"
import { launchFailed } from "../../../../src/daemon/runtime/docker/images.ts"

describe("Docker runtime: ports", () => {
  it("ports that the engine did not publish are named, each protocol separately", () => {
    const asked = {
      "25565/tcp": [{ HostPort: "25565" }],
      "25565/udp": [{ HostPort: "25565" }],
      "25566/tcp": [{ HostPort: "25566" }, { HostPort: "25566" }]
    }
    assert.deepStrictEqual(unpublished(asked, asked), [])
    assert.deepStrictEqual(unpublished(asked, {}), ["25565/tcp", "25565/udp", "25566/tcp"])
    const some = { ...asked, "25565/udp": null, "25566/tcp": [{ HostPort: "1" }] }
    assert.deepStrictEqual(unpublished(asked, some), ["25565/udp", "25566/tcp"])
    assert.deepStrictEqual(unpublished({}, { "80/tcp": null }), [])
  })
})

describe("Docker runtime: errors of the engine", () => {
  it("a known error has a hint", () => {
    const next = (message: string) => launchFailed({ message }).next
    assert.match(
      next("start the container: Bind for 127.0.0.1:1 failed: port is already allocated") ?? "",
      /port/
    )
    assert.match(next("create the container: write /x: no space left on device") ?? "", /^free space/)
    assert.match(next("the Docker engine does not answer at /x: no such socket") ?? "", /^start Docker/)
    assert.isUndefined(next("create the container: conflict"))
    assert.strictEqual(launchFailed({ message: "does not answer", next: "wait" }).next, "wait")
  })
})
