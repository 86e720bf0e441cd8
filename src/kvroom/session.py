"""One contender while it can be asked: launched or attached to, ready, with prompts that fit it."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvroom import control as ctl
from kvroom.clock import now_ns
from kvroom.control import Control
from kvroom.engine import last
from kvroom.errors import EngineError
from kvroom.launch import (
    LOOPBACK,
    Command,
    check_port,
    free_port,
    launched,
    shown_argv,
    shown_env,
)
from kvroom.load.drive import Outgoing
from kvroom.load.prompts import Pool, fingerprint, pool_of_ids, pool_of_texts
from kvroom.load.request import Address, encode, expected_answer_bytes
from kvroom.prepare import SERVED_MODEL, Prepared
from kvroom.provide.cache import Say
from kvroom.provide.environment import given_python, made_environment, packages_of
from kvroom.provide.model import Weights, provided
from kvroom.sample import sampled
from kvroom.store import Run, Start, StartFiles
from kvroom.units import NS_PER_S
from kvroom.workload import PlannedRound

DEATH_WAIT_S = 1.0
_DROPPED_ENV = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True, kw_only=True)
class Session:
    """A contender that is ready to be measured."""

    prepared: Prepared
    address: Address
    served_model: str
    key: str | None
    pool: Pool
    length_forced: bool
    check: Callable[[], None]
    """Raises EngineError if the engine has died; an endpoint of somebody else cannot be watched."""

    def requests(self, planned: PlannedRound, seed: int) -> tuple[list[Outgoing], str]:
        """The round's requests as bytes, and the fingerprint of their prompts."""
        prompts = [self.pool.prompt(r.ordinal, r.prompt_tokens, seed) for r in planned.requests]
        outgoing = [
            Outgoing(
                due_ns=request.due_ns,
                data=self._encoded(prompt, request.output_tokens),
                answer_bytes=expected_answer_bytes(request.output_tokens),
            )
            for request, prompt in zip(planned.requests, prompts, strict=True)
        ]
        return outgoing, fingerprint(prompts)

    def _encoded(self, prompt: list[int] | str, output_tokens: int) -> bytes:
        engine, contender = self.prepared.engine, self.prepared.contender
        body = engine.body(self.served_model, prompt, output_tokens) | contender.body
        given = {name: value for name, value in body.items() if value is not None}
        return encode(self.address, engine.dialect.path, given, self.key)

    def check_death(self) -> None:
        """Look whether the engine is dead, giving its death a moment to show."""
        deadline = time.monotonic() + DEATH_WAIT_S
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.05)


@contextlib.contextmanager
def opened(run: Run, prepared: Prepared, say: Say) -> Iterator[tuple[Session, list[str]]]:
    """The contender, ready; the list fills with warnings of its end when the block is left."""
    files = run.next_start(prepared.contender.name)
    if prepared.provide is None:
        with _control(prepared) as control:
            session = _attached(prepared, control, files, say)
            with _sampled(run, prepared, control, files, None):
                yield session, []
        return
    python, weights = _provided(prepared, say)
    port = _port(prepared)
    command = _command(prepared, python, weights, port, run.folder(prepared.contender.name))
    start = _start_record(prepared, python, weights, command, port)
    files.write(start)
    say("starting")
    with (
        launched(command, port, files) as server,
        contextlib.closing(Control(start.url, None)) as control,
    ):
        ready_s = _until_ready(run, prepared, control, server.check, server.started_ns, files)
        start = msgspec.structs.replace(
            start, ready_s=ready_s, version=_version(run, prepared, control, files)
        )
        files.write(start)
        _check_version(prepared, start.version)
        session = _session(prepared, control, SERVED_MODEL, server.check)
        with _sampled(run, prepared, control, files, server.pid):
            yield session, server.warnings


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
    session = _session(prepared, control, served, lambda: None)
    version = ctl.reported_version(control, prepared.engine)
    _check_version(prepared, version)
    files.write(
        Start(
            argv=[],
            env={},
            url=control.url,
            model=served,
            version=version,
            length_forced=session.length_forced,
        )
    )
    return session


def _session(
    prepared: Prepared, control: Control, served: str, check: Callable[[], None]
) -> Session:
    return Session(
        prepared=prepared,
        address=Address.of(control.url),
        served_model=served,
        key=ctl.api_key(prepared.contender.api_key_env),
        pool=_pool(prepared, control, served),
        length_forced=_length_forced(prepared),
        check=check,
    )


def _pool(prepared: Prepared, control: Control, served: str) -> Pool:
    engine = prepared.engine
    if engine.dialect.tokenizer is not None:
        return pool_of_ids(lambda text: ctl.tokenize(control, engine, served, text))
    body = prepared.contender.body
    return pool_of_texts(lambda text: ctl.prompt_length(control, engine, served, text, body))


def _length_forced(prepared: Prepared) -> bool:
    extra = {**prepared.engine.dialect.extra, **prepared.contender.body}
    return bool(extra.get("ignore_eos"))


def _provided(prepared: Prepared, say: Say) -> tuple[Path | None, Weights]:
    provide, home = prepared.provide, prepared.engine.home
    assert provide is not None
    assert home is not None
    assert prepared.model is not None
    python = None
    if provide.pip is not None:
        python = made_environment(provide.pip, home.repairs, say)
    elif provide.env is not None:
        python = given_python(provide.env, prepared.base)
    return python, provided(prepared.model, prepared.engine, prepared.base, say)


def _port(prepared: Prepared) -> int:
    port = prepared.contender.port
    if port is None:
        return free_port()
    check_port(port)
    return port


def _command(
    prepared: Prepared, python: Path | None, weights: Weights, port: int, cwd: Path
) -> Command:
    program = prepared.program(str(python))
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED_ENV}
    env |= _given_env(prepared)
    if python is not None:
        env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', '')}"
    return Command(argv=program + prepared.arguments(weights.path, port), env=env, cwd=cwd)


def _given_env(prepared: Prepared) -> Mapping[str, str]:
    return {**prepared.engine.env, **prepared.contender.env}


def _start_record(
    prepared: Prepared, python: Path | None, weights: Weights, command: Command, port: int
) -> Start:
    home = prepared.engine.home
    return Start(
        argv=shown_argv(command.argv),
        env=shown_env(command.env, _given_env(prepared)),
        cwd=str(command.cwd),
        url=f"http://{LOOPBACK}:{port}",
        packages=packages_of(python) if python is not None else {},
        model=weights.path,
        model_note=weights.note,
        disclosure=home.disclosure if home is not None and python is not None else "",
        length_forced=_length_forced(prepared),
    )


def _until_ready(
    run: Run,
    prepared: Prepared,
    control: Control,
    check: Callable[[], None],
    started_ns: int,
    files: StartFiles,
) -> float:
    """Seconds from the start of the process until the engine was ready."""
    timeout_s = run.matchup.timeouts.ready_s
    ctl.wait_ready(control, prepared.engine, check, _tail_reader(files.log), timeout_s)
    return (now_ns() - started_ns) / NS_PER_S


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
    if wanted is not None and reported is not None and not _same_version(wanted, reported):
        raise EngineError(
            f"the matchup asks for version {wanted}, the server is {reported}",
            "change 'version', or provide the version it names",
        )


def _same_version(wanted: str, reported: str) -> bool:
    plain = reported.removeprefix("v")
    return plain == wanted or plain.startswith((f"{wanted}.", f"{wanted}-", f"{wanted}+"))
