"""Drives `greenroom acp` with the `agent-client-protocol` package: sessions, prompts, a child from start to end, then kill -9, and the next agent over the same store.

    python tests/clients/acp_client.py PROGRAM
"""

import asyncio
import os
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import acp

DESK = """
run = { root = "desk" }

[agents.desk]
behavior = "script"
turns = [
  [{ delegate = { agent = "clerk", as = "c1", description = "finds facts", prompt = "facts" } }, { say = "sent for" }],
  [{ list = true }, { say = "listed" }],
  [{ send = { to = "c1", message = "more" } }, { await = "children" }, { say = "heard" }],
]

[agents.clerk]
behavior = "command"
answer = "text"
command = ["sh", "-c", 'touch begun; n=0; while [ -e hold ] && [ $n -lt 5000 ]; do sleep 0.02; n=$((n + 1)); done; echo "found $GREENROOM_MESSAGE"']
"""


class Editor(acp.Client):
    """What an editor hears, and a way to wait for it."""

    def __init__(self):
        self.heard = []
        self.news = asyncio.Condition()

    async def session_update(self, session_id, update, **_):
        async with self.news:
            self.heard.append(update)
            self.news.notify_all()

    async def request_permission(self, *_, **__):
        raise acp.RequestError.method_not_found("session/request_permission")

    def said(self, kind):
        """Returns the texts of one kind of update."""
        return [update.content.text for update in self.heard if update.session_update == kind]

    def children(self):
        """Returns label and status of each start and end of a child."""
        facts = [update.field_meta.get("greenroom/subagent") for update in self.heard if update.session_update == "session_info_update" and update.field_meta]
        return [(fact["label"], fact["status"]) for fact in facts if fact]

    async def until(self, holds):
        async with asyncio.timeout(60), self.news:
            await self.news.wait_for(lambda: holds(self))


@asynccontextmanager
async def served(program, folder):
    editor = Editor()
    words = ["--store", "sqlite:desk.db", "acp", "--program", "desk.toml"]
    async with acp.spawn_agent_process(editor, program, *words, cwd=folder) as (agent, process):
        greeting = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert greeting.agent_info.name == "greenroom" and greeting.agent_capabilities.load_session, greeting
        yield editor, agent, process


def text(words):
    return [acp.text_block(words)]


async def first(program, folder):
    """A child at work behind a prompt that is answered; then the agent is killed in the middle of the child's turn."""
    (folder / "hold").touch()
    async with served(program, folder) as (editor, agent, process):
        session = (await agent.new_session(cwd=str(folder), mcp_servers=[])).session_id
        assert (await agent.prompt(session, text("Begin."))).stop_reason == "end_turn"
        assert editor.said("agent_message_chunk") == ["sent for"], editor.heard
        await editor.until(lambda editor: ("finds facts", "running") in editor.children())
        listed = await agent.list_sessions()
        assert [(one.session_id, one.cwd) for one in listed.sessions] == [(session, str(folder))], listed
        try:
            await agent.prompt("nobody", text("x"))
            raise AssertionError("a prompt for nobody was taken")
        except acp.RequestError as error:
            assert error.code == -32002, error
        async with asyncio.timeout(60):
            while not (folder / "begun").exists():
                await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
    (folder / "hold").unlink()
    return session


async def second(program, folder, session):
    """The next agent tells what there was, runs on what was left, lists and delivers."""
    async with served(program, folder) as (editor, agent, process):
        await agent.load_session(str(folder), session, mcp_servers=[])
        assert "Begin." in editor.said("user_message_chunk") and "sent for" in editor.said("agent_message_chunk"), editor.heard
        await editor.until(lambda editor: ("finds facts", "complete") in editor.children())
        assert (await agent.prompt(session, text("Who is there?"))).stop_reason == "end_turn"
        assert (await agent.prompt(session, text("More."))).stop_reason == "end_turn"
        await editor.until(lambda editor: "heard" in editor.said("agent_message_chunk"))
        told = "".join(editor.said("user_message_chunk"))
        assert "found facts" in told and "found more" in told, told
        await agent.close_session(session)
        try:
            await agent.prompt(session, text("x"))
            raise AssertionError("a closed session took a prompt")
        except acp.RequestError as error:
            assert error.code == -32002, error
        await agent.resume_session(session, str(folder))
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0


async def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "desk.toml").write_text(DESK)
        session = await first(program, folder)
        await second(program, folder, session)
    print("acp: a child from its start to its end, over a kill of the agent")


asyncio.run(main())
