"""A contender opened for measuring: launched or attached to, ready, with prompts that fit it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kvroom import control as ctl
from kvroom.assemble import Assembled, assembled
from kvroom.catalogue import is_version
from kvroom.clock import now_ns
from kvroom.control import Control
from kvroom.dialect import Dialect
from kvroom.errors import EngineError
from kvroom.launch import Server, launched, run_beside
from kvroom.load.prompts import Pool, pool_of_ids, pool_of_texts
from kvroom.load.request import Address
from kvroom.log_reader import last
from kvroom.observe import family
from kvroom.prepare import SERVED_MODEL, Prepared
from kvroom.provide.cache import Say
from kvroom.sample import sampled
from kvroom.session import Session, Watch
from kvroom.store import Run, Start, StartFiles
from kvroom.units import NS_PER_S

HTTP_OK = 200


@contextlib.contextmanager
def opened(
    run: Run, prepared: Prepared, kind: str, say: Say
) -> Iterator[tuple[Session, list[str]]]:
    """The contender, ready; the list fills with warnings of its end when the block is left.

    ``kind`` says whether its caches are emptied before (``first``), kept on purpose (``warm``), or
    nobody's business (empty).
    """
    files = run.next_start(prepared.contender.name)
    if prepared.provide is None:
        with _control(prepared) as control:
            session = _attached(prepared, control, files, say)
            with _sampled(run, prepared, control, files, None):
                yield session, []
        return
    made = assembled(run, prepared, files, kind, say)
    files.write(made.start)
    for caution in made.cautions:
        say(caution)
    say("starting" if not kind else f"starting ({kind})")
    with (
        launched(made.command, made.port, files) as server,
        contextlib.closing(Control(made.start.url, None)) as control,
    ):
        _until_ready(run, prepared, made, control, server, files)
        start = msgspec.structs.replace(
            made.start,
            started_ns=server.started_ns,
            ready_s=(now_ns() - server.started_ns) / NS_PER_S,
            version=_version(run, prepared, control, files),
        )
        files.write(start)
        _check_version(prepared, start.version)
        pid = made.pid(server.pid)
        watch = Watch(server.check, family(pid))
        session = _session(prepared, control, _served(prepared, control), watch, files)
        _write_manners(files, start, session)
        with _sampled(run, prepared, control, files, pid):
            server.warnings.extend(made.cautions)
            yield session, server.warnings


def _served(prepared: Prepared, control: Control) -> str:
    home = prepared.engine.home
    assert home is not None
    return SERVED_MODEL if home.names_model else ctl.served_model(control)


def _write_manners(files: StartFiles, start: Start, session: Session) -> None:
    """Keep what the engine could not be asked for."""
    files.write(
        msgspec.structs.replace(
            start, length_forced=session.length_forced, left_out=list(session.left_out)
        )
    )


def _sampled(
    run: Run, prepared: Prepared, control: Control, files: StartFiles, pid: int | None
) -> contextlib.AbstractContextManager[None]:
    """Looks at the engine while the block runs; the control connection serves threads."""
    gauges = prepared.engine.gauges
    return sampled(files.samples, run.matchup.sample_s, gauges, control.client, pid)


def _control(prepared: Prepared) -> contextlib.closing[Control]:
    contender = prepared.contender
    assert contender.url is not None
    return contextlib.closing(Control(contender.url, ctl.api_key(contender.api_key_env)))


def _attached(prepared: Prepared, control: Control, files: StartFiles, say: Say) -> Session:
    contender = prepared.contender
    say(f"attaching to {control.url}")
    if control.status(prepared.engine.probes.ready) is None:
        raise EngineError(
            f"{control.url} does not answer", "is the server running, and is the address right?"
        )
    served = contender.served_model or ctl.served_model(control)
    session = _session(prepared, control, served, Watch(lambda: None, {}), files)
    version = ctl.reported_version(control, prepared.engine)
    _check_version(prepared, version)
    start = Start(argv=[], env={}, url=control.url, model=served, version=version)
    _write_manners(files, start, session)
    return session


def _session(
    prepared: Prepared,
    control: Control,
    served: str,
    watch: Watch,
    files: StartFiles,
) -> Session:
    contender, dialect = prepared.contender, _dialect(prepared)
    left_out = (
        ctl.refused_fields(control, dialect, served, contender.body) if dialect.optional else []
    )
    extra = dict.fromkeys(left_out) | contender.body
    return Session(
        prepared=prepared,
        dialect=dialect,
        extra=extra,
        left_out=tuple(left_out),
        files=files,
        address=Address.of(control.url),
        served_model=served,
        key=ctl.api_key(contender.api_key_env),
        pool=_pool(control, dialect, served, extra),
        check=watch.check,
        family=watch.family,
        answers=lambda: control.status(prepared.engine.probes.ready) == HTTP_OK,
    )


def _dialect(prepared: Prepared) -> Dialect:
    dialect = prepared.engine.dialect
    return dialect.chatting() if prepared.contender.endpoint == "chat" else dialect


def _pool(control: Control, dialect: Dialect, served: str, extra: Mapping[str, Any]) -> Pool:
    tokenizer = dialect.tokenizer
    if tokenizer is not None:
        return pool_of_ids(lambda text: ctl.tokenize(control, tokenizer, served, text))
    return pool_of_texts(lambda text: ctl.prompt_length(control, dialect, served, text, extra))


def _until_ready(
    run: Run,
    prepared: Prepared,
    made: Assembled,
    control: Control,
    server: Server,
    files: StartFiles,
) -> None:
    """Until the engine answers, has its model loaded, and says that it is ready."""
    timeout_s, engine = run.matchup.timeouts.ready_s, prepared.engine
    ctl.wait_answer(control, engine, server.check, timeout_s)
    for command in made.setup:
        run_beside(command, timeout_s)
    ctl.load_model(control, engine, SERVED_MODEL, timeout_s)
    ctl.wait_line(engine, server.check, _tail_reader(files.log))


def _tail_reader(log: Path) -> Callable[[], str]:
    """Reads what was added to a log since the last call."""
    position = 0

    def read() -> str:
        nonlocal position
        with log.open("rb") as file:
            file.seek(position)
            added = file.read()
        position += len(added)
        return added.decode("utf-8", errors="replace")

    return read


def _version(run: Run, prepared: Prepared, control: Control, files: StartFiles) -> str | None:
    """What the engine prints counts before what its endpoint says: wheels of llama.cpp say b0."""
    engine = prepared.engine
    lines = run.log_lines(files, engine.log_marks)
    fact = last(engine.read_log(lines, files.log.name), "version")
    return str(fact.value) if fact else ctl.reported_version(control, prepared.engine)


def _check_version(prepared: Prepared, reported: str | None) -> None:
    wanted = prepared.contender.version
    if wanted is not None and reported is not None and not is_version(wanted, reported):
        raise EngineError(
            f"the matchup asks for version {wanted}, the server is {reported}",
            "change 'version', or provide the version it names",
        )
