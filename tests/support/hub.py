"""A server that speaks as much of the Hugging Face Hub's protocol as its library asks for, on a local socket."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_owner"


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.repositories: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        """Commits, oldest first: each one's name and files."""
        self.visibility: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        """Sizes of files that it claims instead of the true ones."""
        self.downloads: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repository: str, files: dict[str, bytes]) -> str:
        commits = self.repositories.setdefault(repository, [])
        now = {**(commits[-1][1] if commits else {}), **files}
        name = hashlib.sha1(repr((len(commits), sorted(now.items()))).encode()).hexdigest()
        commits.append((name, now))
        return name


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = urlsplit(self.path).path
        if path == "/api/validate-yaml":
            return self._say({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._refuse(401, "", "Invalid username or password.")
        if path == "/api/repos/create":
            said = json.loads(body)
            repository = f"{said['organization']}/{said['name']}"
            if repository in self.server.repositories:
                return self._refuse(409, "", "You already created this model repo")
            self.server.repositories[repository] = []
            self.server.visibility[repository] = said["visibility"]
            return self._say({"url": f"{self.server.address}/{repository}"})
        repository, what = "/".join(path.split("/")[3:5]), path.split("/")[5]
        if what == "preupload":
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self._say({"files": files})
        lines = [json.loads(line) for line in body.splitlines()]
        added = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
        }
        name = self.server.commit(repository, added)
        return self._say(
            {"success": True, "commitOid": name, "commitUrl": f"{self.server.address}/{repository}/commit/{name}"}
        )

    def do_GET(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        is_question = parts[:2] == ["api", "models"]
        if not is_question and parts[2:3] != ["resolve"]:
            return self._refuse(404, "", f"unknown: {self.path}")
        repository = "/".join(parts[2:4] if is_question else parts[:2])
        revision = (parts[5:] or ["main"])[0] if is_question else parts[3]
        commits = self.server.repositories.get(repository)
        is_private = self.server.visibility.get(repository) == "private"
        if commits is None or (is_private and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            return self._refuse(401, "RepoNotFound", "Repository not found")
        if self.server.visibility.get(repository) == "gated":
            return self._refuse(403, "GatedRepo", "Access to this model is restricted")
        name, files = next((each for each in commits if each[0] == revision), commits[-1])
        if revision not in ("main", name):
            return self._refuse(404, "RevisionNotFound", "Invalid rev id")
        if is_question:
            siblings = [
                {"rfilename": file, "size": self.server.sizes.get(file, len(content))}
                for file, content in files.items()
            ]
            return self._say({"id": repository, "sha": name, "siblings": siblings})
        content = files[parts[4]]
        if self.command == "GET":
            self.server.downloads.append(f"{repository}/{parts[4]}")
        return self._answer(200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": name})

    do_HEAD = do_GET

    def _say(self, answer: dict[str, Any]) -> None:
        self._answer(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(
            status, json.dumps({"error": message}).encode(), {"X-Error-Code": code, "X-Error-Message": message}
        )

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextlib.contextmanager
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
