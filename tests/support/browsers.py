"""A browser without a screen or scripts: it keeps the cookie of a login and sends the forms of a page."""

from __future__ import annotations

import re
from typing import Any

import httpx
from stores import ADMIN_TOKEN, AdminCalls


class Browser:
    """Of one person; `call` reaches the admin application."""

    def __init__(self, call: AdminCalls) -> None:
        self._call = call
        self.cookie = ""

    async def log_in(self, token: str = ADMIN_TOKEN, **fields: str) -> httpx.Response:
        answer = await self.post("/ui/login", {"token": token} | fields)
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self._call("GET", path, token=None, headers={"Cookie": self.cookie} | headers)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        sent: dict[str, Any] = {"Cookie": self.cookie} | headers
        return await self._call("POST", path, token=None, data=fields, headers=sent)

    async def form_token(self, path: str = "/ui/overview") -> str:
        found = re.search(r'name="form_token" value="([^"]+)"', (await self.get(path)).text)
        assert found is not None
        return found[1]
