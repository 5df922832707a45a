/** `muster backups targets`: where backups are stored (spec 12.6). */
import { Console, Option } from "effect"
import { Argument, Flag } from "effect/cli"
import type { BackupTargetView } from "../../contract/domain/BackupTarget.ts"
import { NodeId } from "../../contract/domain/Id.ts"
import { command, given, group, switchFlag, textFlag } from "../shared/command.ts"
import { CommandError } from "../shared/failures.ts"
import { ask } from "../shared/musterClient.ts"
import { type Listing, listCommand, outputFlags, printOne, wide } from "../shared/output.ts"
import { confirm, lineIn, yesFlag } from "../shared/terminal.ts"

const s3 =
  (read: (target: Extract<BackupTargetView, { readonly type: "s3" }>) => string | undefined) =>
  (target: BackupTargetView) =>
    target.type === "s3" ? (read(target) ?? "") : ""

const listing: Listing<BackupTargetView> = {
  id: ({ id }) => id,
  columns: {
    id: ({ id }) => id,
    type: ({ type }) => type,
    bucket: s3(({ bucket }) => bucket),
    endpoint: s3(({ endpoint }) => endpoint),
    source: ({ source }) => source,
    prefix: wide(s3(({ prefix }) => prefix)),
    region: wide(s3(({ region }) => region)),
    "access key": wide(s3(({ access_key_id }) => access_key_id))
  }
}

const targetArgument = Argument.String("target").pipe(Argument.withDescription("Id of the target"))
const needed = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description))

const list = listCommand(
  listing,
  ask((muster) => muster.backupTargets.list()),
  "No targets.",
  {
    description: "List the targets of backups",
    examples: {
      "muster backups targets list": "All targets, and who defined them",
      "muster backups targets list -o wide": "Also their prefixes and regions"
    }
  }
)

const create = command("create", {
  description:
    "Define a target in a bucket of an S3 server. The secret is read from a file and never shown. Test the target before you use it.",
  short: "Define a target in an S3 bucket",
  examples: {
    "muster backups targets create offsite --endpoint https://s3.eu-west-1.amazonaws.com --region eu-west-1 --bucket my-backups --access-key AKIAEXAMPLE --secret-file s3-secret":
      "A bucket of AWS",
    "muster backups targets create minio --endpoint https://minio.example --region us-east-1 --bucket backups --access-key muster --secret-file - --path-style":
      "A server of your own; the secret on standard input"
  },
  input: {
    target: targetArgument,
    endpoint: needed("endpoint", "URL of the S3 server"),
    region: needed("region", "Its region"),
    bucket: needed("bucket", "Name of the bucket"),
    prefix: textFlag("prefix", "Beginning of the keys of its objects"),
    "access-key": needed("access-key", "Id of the access key"),
    "secret-file": needed("secret-file", "File with the secret access key; - is standard input"),
    "path-style": switchFlag("path-style", "The name of the bucket is in the path, as MinIO needs"),
    ...outputFlags
  },
  *run({ bucket, endpoint, prefix, region, target, ...flags }) {
    const payload = {
      ...{ id: target, type: "s3" as const, endpoint, region, bucket },
      access_key_id: flags["access-key"],
      secret_access_key: yield* lineIn("secret access key", flags["secret-file"]),
      ...given({ prefix }),
      ...(flags["path-style"] ? { path_style: true } : {})
    }
    yield* printOne(flags, listing, yield* ask((muster) => muster.backupTargets.create({ payload })))
  }
})

const test = command("test", {
  description: "Have a node write, read and delete an object. Ends with 1 if a step fails, and names it.",
  short: "Test a target",
  examples: {
    "muster backups targets test offsite": "From any connected node",
    "muster backups targets test offsite --node n1": "From one node"
  },
  input: { target: targetArgument, node: textFlag("node", "Id of the node that tests it") },
  *run({ node, target }) {
    const tested = yield* ask((muster) =>
      muster.backupTargets.test({
        params: { target },
        payload: given({ node_id: Option.map(node, NodeId.make) })
      })
    )
    if (!tested.ok)
      return yield* new CommandError({
        status: "failed",
        message: `node ${tested.node_id} cannot ${tested.step ?? "use"}: ${tested.reason ?? "no reason given"}`
      })
    yield* Console.log(`Node ${tested.node_id} can write, read and delete.`)
  }
})

const remove = command("delete", {
  description: "Delete a target that has no backups. Its bucket stays.",
  examples: {
    "muster backups targets delete offsite": "After confirmation",
    "muster backups targets delete offsite --yes": "Without a question"
  },
  input: { target: targetArgument, yes: yesFlag },
  *run({ target, yes }) {
    yield* confirm(`Delete the target ${target}, with its secret?`, yes)
    yield* ask((muster) => muster.backupTargets.remove({ params: { target } }))
    yield* Console.log(`Target ${target} is deleted.`)
  }
})

export const targets = group("targets", {
  short: "Define where backups are stored",
  description: "Define, test and delete targets of backups. Needs a key of scope AppAdmin.",
  subcommands: [list, create, test, remove]
})
