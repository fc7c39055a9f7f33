"""``fareg calibrate``."""

from __future__ import annotations

from fareg.cli import _options as opt
from fareg.cli._running import answering, busy, engine_of, names
from fareg.cli._stopping import say


def calibrate(
    model: opt.ModelFile,
    data: opt.Data,
    target: opt.Target,
    out: opt.ModelOut,
    drop_missing_target: opt.DropMissingTarget = False,
    ids: opt.Ids = None,
    batch_size: opt.BatchSize = 50_000,
    engine: opt.Engine = "local",
    jobs: opt.Jobs = None,
    scheduler: opt.Scheduler = None,
    trust: opt.Trust = None,
    sha256: opt.Sha256 = None,
    json: opt.Json = False,
) -> None:
    """Give a model the thresholds that all rows of a folder ask for, exactly.

    Rows are scored where they lie; rows that the model was fitted on are left out.
    """
    with answering(json) as told:
        from fareg._files import digest_of
        from fareg.workflow import calibrate_folder

        where = engine_of(data, engine, jobs, scheduler)
        with busy("loading the model", json) as progress:
            found = calibrate_folder(
                model,
                data,
                target=target,
                out=out,
                drop_missing_target=drop_missing_target,
                ids=ids,
                batch_size=batch_size,
                trusted=names(trust),
                sha256=sha256,
                progress=progress,
                **where,
            )
        told.update(found, out=out, sha256=digest_of(out))
    if not json:
        from fareg import _words as words

        say(f"calibrated on {words.rows(told['rows'])}: model in {out}")
        say(f"SHA-256 of the model: {told['sha256']}")
