"""Drives `greenroom mcp` with the `mcp` package: all six tools, then kill -9, and the next server over the same store.

    python tests/clients/mcp_client.py PROGRAM
"""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client

AGENTS = """
run = { root = "editor" }
agents.editor = { behavior = "script", turns = [] }

[agents.clerk]
behavior = "command"
answer = "text"
command = ["sh", "-c", 'echo "you said: $GREENROOM_MESSAGE"']

[agents.slow]
behavior = "command"
answer = "text"
command = ["sh", "-c", 'touch begun; n=0; while [ ! -e go ] && [ $n -lt 5000 ]; do sleep 0.02; n=$((n + 1)); done; echo "late: $GREENROOM_MESSAGE"']
"""


class Desk:
    """A folder with a program file and a store, and the program that serves it."""

    def __init__(self, program: str, folder: str):
        self.program = program
        self.folder = Path(folder)
        (self.folder / "agents.toml").write_text(AGENTS)

    @asynccontextmanager
    async def serve(self):
        # The shell tells the id that the server then has, since the package does not.
        script = 'echo $$ > pid; exec "$0" --store sqlite:desk.db mcp --root project --program agents.toml 2>> errors'
        server = StdioServerParameters(command="sh", args=["-c", script, self.program], cwd=self.folder)
        strange = []

        async def handle(message):
            if isinstance(message, Exception):
                strange.append(message)

        async with stdio_client(server) as (reader, writer), ClientSession(reader, writer, message_handler=handle) as session:
            yield session
        assert not strange, f"stdout had what is no protocol: {strange}"

    def kill(self):
        os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)

    async def until(self, name: str):
        async with asyncio.timeout(60):
            while not (self.folder / name).exists():
                await asyncio.sleep(0.01)


async def call(session, name, arguments=None, **more):
    """Calls a tool and returns its texts."""
    result = await session.call_tool(name, arguments, **more)
    assert not result.is_error, result
    return [block.text for block in result.content]


async def failed(session, name, arguments):
    """Calls a tool that fails, and returns the code and the text."""
    result = await session.call_tool(name, arguments)
    assert result.is_error, result
    return result.structured_content["error"]["code"], result.content[0].text


async def start(session, agent, prompt):
    (text,) = await call(session, "subagent", {"description": "collect facts", "prompt": prompt, "agent": agent, "run_in_background": True})
    return re.fullmatch("started subagent (\\S+)", text)[1]


async def read(session, child):
    """Reads a log to its end, by pages."""
    events, start = [], 0
    while True:
        *lines, place = await call(session, "read_log", {"subagent_id": child, "from": start, "limit": 7})
        events += [json.loads(line) for text in lines for line in text.splitlines()]
        if more := re.search("next page is from (\\d+)", place):
            start = int(more[1])
        else:
            assert f"the log ends here, position {len(events)}" in place, place
            return events


async def first(desk):
    """Uses all six tools, and leaves two subagents: one that is done, and one in the middle of a turn, with another message waiting."""
    async with desk.serve() as session:
        greeting = await session.initialize()
        assert greeting.server_info.name == "greenroom" and "list_agents" in greeting.instructions, greeting
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert list(tools) == ["subagent", "send_message", "list_agents", "wait", "read_log", "interrupt"], tools
        assert tools["subagent"].input_schema["properties"]["agent"]["enum"] == ["clerk", "editor", "slow"], tools["subagent"]
        assert all("parent" not in json.dumps(tool.input_schema) for tool in tools.values())

        assert await call(session, "list_agents") == ["(no subagents)"]
        answer = await call(session, "subagent", {"description": "one question", "prompt": "hello", "agent": "clerk"})
        assert answer == ["you said: hello"], answer

        done = await start(session, "clerk", "one")
        told = await call(session, "wait", {"subagent_id": done, "timeout": 60})
        assert re.fullmatch(f"subagent {done} is done, position \\d+", told[0]) and told[1] == "you said: one", told
        assert await call(session, "list_agents") == [f"{done} [complete] — collect facts"]
        told = await call(session, "send_message", {"subagent_id": done, "message": "two"})
        assert told == [f"message queued as the next turn for subagent {done}"], told
        assert (await call(session, "wait", {"subagent_id": done, "timeout": 60}))[1] == "you said: two"

        for name, arguments, code in [
            ("send_message", {"subagent_id": "nobody", "message": "x"}, "NOT_RESUMABLE"),
            ("send_message", {"subagent_id": "project", "message": "x"}, "UNAUTHORIZED"),
        ]:
            assert (found := await failed(session, name, arguments))[0] == code and "the message was not delivered" in found[1], found
        assert (await failed(session, "send_message", {"subagent_id": done}))[0] == "INVALID_ARGS"
        assert (await failed(session, "wait", {"timeout": "soon"}))[0] == "INVALID_ARGS"
        try:
            await session.call_tool("fly", {})
            raise AssertionError("there is a tool of any name")
        except MCPError as error:
            assert error.error.code == -32602, error

        # A wait that is over first is an answer like any other, and tells how it gets on meanwhile.
        gone = await start(session, "slow", "never mind")
        await desk.until("begun")
        progress = []

        async def tell(now, total, message):
            progress.append((total, message))

        told = await call(session, "wait", {"subagent_id": gone, "timeout": 1}, progress_callback=tell)
        assert re.fullmatch("still running, position \\d+", told[0]), told
        assert progress and progress[0] == (1.0, "still running"), progress
        told = await call(session, "interrupt", {"subagent_id": gone})
        assert told == [f"interrupted turn 1 of subagent {gone}"], told
        assert " ended as aborted, " in (await call(session, "wait", {"subagent_id": gone, "timeout": 60}))[0]
        # A call that its client no longer waits for disturbs nobody.
        (desk.folder / "begun").unlink()
        busy = await start(session, "slow", "three")
        await desk.until("begun")
        try:
            await session.call_tool("wait", {"subagent_id": busy, "timeout": 60}, read_timeout_seconds=0.2)
            raise AssertionError("it did not wait")
        except MCPError:
            pass
        await call(session, "send_message", {"subagent_id": busy, "message": "four"})

        # In the middle of a turn, and of a call.
        waiting = asyncio.create_task(session.call_tool("wait", {"timeout": 60}))
        await asyncio.sleep(0)
        await call(session, "list_agents")
        desk.kill()
        try:
            await waiting
            raise AssertionError("a dead server has answered")
        except MCPError:
            pass
        return done, gone, busy


async def second(desk, done, gone, busy):
    """The next server has what the first one had, and delivers."""
    async with desk.serve() as session:
        await session.initialize()
        listed = (await call(session, "list_agents"))[0].splitlines()
        assert listed == [f"{done} [complete] — collect facts", f"{gone} [complete] — collect facts", f"{busy} [running] — collect facts"], listed
        for child, message in [(busy, "five"), (done, "six"), (gone, "seven")]:
            await call(session, "send_message", {"subagent_id": child, "message": message})
        (desk.folder / "go").touch()
        told = await call(session, "wait", {"timeout": 60})
        assert told[0].startswith("nothing is left to do, position "), told
        answers = [(await call(session, "wait", {"subagent_id": child, "timeout": 60}))[1] for child in (done, gone, busy)]
        assert answers == ["you said: six", "late: seven", "late: five"], answers

        said = [event["data"]["message"]["content"][0]["text"] for event in await read(session, busy) if event["type"] == "assistant/message"]
        assert said == ["late: three", "late: four", "late: five"], said
        events = await read(session, done)
        assert [event["seq"] for event in events] == list(range(len(events)))
        asked = [event["data"]["content"][0]["text"] for event in events if event["type"] == "user/message"]
        assert asked == ["one", "two", "six"], asked


async def main(program):
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(program, folder)
        try:
            await second(desk, *await first(desk))
        except BaseException:
            print((Path(folder) / "errors").read_text(), file=sys.stderr)
            raise
    print("mcp: six tools, a server killed in the middle of a turn, and the next one with everything that it had")


asyncio.run(main(os.path.realpath(sys.argv[1])))
