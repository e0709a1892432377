"""The console's pages over HTTP.

Owns which request is for what, log-in and log-out, what proves that a change was made in a page of
this console, and the headers that keep other pages away. What a view shows and what an action does,
other modules know.

A change needs the session's cookie, its token in the form, and a browser that says that the request
comes from this origin. Pages run no inline script, and no page may frame them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from twisted.internet.defer import ensureDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.server import NOT_DONE_YET

from gateway import __version__
from gateway.admin.console.actions import Action, Asked, audit_refusal, audited
from gateway.admin.console.editing import editor
from gateway.admin.console.live import Streams
from gateway.admin.console.message_actions import LOOK_TO_EDIT, chosen
from gateway.admin.console.sessions import Session, Sessions
from gateway.admin.console.view import View, environment
from gateway.admin.service.requests import (
    AdminRequest,
    Refused,
    Routes,
    check_text,
    internal_error,
    refusal,
)
from gateway.admin.service.roles import Role
from gateway.admin.service.service import Identify
from gateway.instance.listening import peer_host

ROOT: Final = "/console/"
#: No inline script or style, nothing from elsewhere, and no page around this one.
_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "; ".join((*_POLICY, "connect-src 'self'")),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "stomp-gateway",
}
_TYPES: Final = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_HTML: Final = "text/html; charset=utf-8"
_FORM: Final = "application/x-www-form-urlencoded"
#: Of a message that is edited, each property is one.
_MOST_FIELDS: Final = 1000
#: The parameter that names the messages which were chosen on a page; it may be there many times.
_CHOSEN: Final = b"chosen"


class Console:
    """The pages.

    :param routes: what actions are done by.
    :param identify: proves a name and a password.
    :param views: in the order of the menu; those whose title is empty are not in it.
    :param secure: whether the service speaks TLS.
    """

    def __init__(
        self,
        reactor: Any,
        routes: Routes,
        identify: Identify,
        sessions: Sessions,
        views: Sequence[View],
        actions: Mapping[str, Action],
        secure: bool,
        log: Logger,
    ) -> None:
        self._routes = routes
        self._identify = identify
        self._sessions = sessions
        self._views = {view.path: view for view in views}
        self._actions = actions
        self._secure = secure
        self._log = log
        self._templates = environment()
        self._static = _static_files()
        self._templates.globals |= {
            "root": ROOT,
            "version": __version__,
            "menu": [view for view in views if view.title],
            "static": {
                name: f"{ROOT}static/{name}?{tag}" for name, (_, tag) in self._static.items()
            },
            "actions": actions,
        }
        self._streams = Streams(reactor, sessions, self._fragment)

    # --- what the admin service calls

    def has(self, request: Any) -> bool:
        """Whether this request is for a page.

        A browser that asks for the root is led to them.
        """
        path: bytes = request.path
        if path == b"/":
            return "text/html" in (request.getHeader("Accept") or "")
        return path.startswith(ROOT.encode()) or path == ROOT[:-1].encode()

    def close(self) -> None:
        """End what follows what happens. Idempotent."""
        self._streams.close()

    def render(self, request: Any) -> int:
        """Answer."""
        request.gone = False
        request.notifyFinish().addErrback(lambda _: setattr(request, "gone", True))
        ensureDeferred(self._answered(request)).addErrback(
            lambda failure: self._broken(request, failure)
        )
        return NOT_DONE_YET

    # --- requests

    async def _answered(self, request: Any) -> None:
        for name, value in _HEADERS.items():
            request.setHeader(name, value)
        try:
            if request.too_large:
                raise Refused("the form is too large", "", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            check_text(request)
            await self._routed(request, request.path.decode().removeprefix(ROOT))
        except Exception as error:
            refused = refusal(error)
            if refused is None:
                raise
            self._refuse(request, refused)

    def _broken(self, request: Any, failure: Failure) -> None:
        refused = internal_error(self._log, request, failure)
        if not request.startedWriting:
            self._refuse(request, refused)
        elif not request.gone:
            request.finish()

    def _refuse(self, request: Any, refused: Refused) -> None:
        request.setResponseCode(refused.status.value)
        for name, value in refused.headers.items():
            if name != "WWW-Authenticate":
                request.setHeader(name, value)
        session = self._session(request)
        self._show(request, session, "refused.html", {"title": "Refused", "text": refused.text})

    async def _routed(self, request: Any, path: str) -> None:
        method = request.method.decode("ascii", "replace")
        if method not in ("GET", "POST"):
            raise _not_found()
        if path.startswith("static/"):
            self._send_static(request, path.removeprefix("static/"))
            return
        if path == "login":
            await self._log_in(request, method)
            return
        session = self._session(request)
        if session is None:
            self._to_login(request, path)
            return
        request.let_in(session.identity)
        if path == "logout" and method == "POST":
            self._prove(request, session, _form(request))
            self._sessions.end(session)
            self._log.info("{user} logged out of the console", user=session.user)
            self._set_cookie(request, "", 0)
            self._redirect(request, f"{ROOT}login")
            return
        if path.startswith("live/") and method == "GET":
            asked = self._asked(request, session)
            view = self._view(path.removeprefix("live/"), asked)
            if not view.every_s:
                raise _not_found()
            self._streams.open(request, session, view, asked)
            return
        self._sessions.use(session)
        if path.startswith("act/"):
            await self._act(request, session, method, path.removeprefix("act/"))
        elif path == "edit":
            await self._edit(request, session, method)
        elif method == "GET" and path in ("/", "/console"):
            self._redirect(request, ROOT)
        elif method == "GET":
            self._send(request, await self._page(request, session, path))
        else:
            raise _not_found()

    def _view(self, path: str, asked: AdminRequest) -> View:
        view = self._views.get(path)
        if view is None:
            raise _not_found()
        _check_role(view.role, asked)
        return view

    def _session(self, request: Any) -> Session | None:
        token = request.getCookie(self._cookie(request).encode())
        return None if not token else self._sessions.find(token.decode("ascii", "replace"))

    def _asked(
        self, request: Any, session: Session, body: Mapping[str, str] | None = None
    ) -> AdminRequest:
        query = {
            name.decode("utf-8", "replace"): values[-1].decode("utf-8", "replace")
            for name, values in request.args.items()
        }
        if _CHOSEN in request.args:
            query |= chosen([each.decode("utf-8", "replace") for each in request.args[_CHOSEN]])
        role = self._sessions.role(session) or Role.VIEWER
        return AdminRequest(session.user, query, dict(body or {}), role, _host(request))

    # --- views

    async def _page(self, request: Any, session: Session, path: str) -> str:
        asked = self._asked(request, session)
        view = self._view(path, asked)
        shown = await view.look(asked)
        if view.connects:
            reached: Any = shown["reached"]
            policy = (*_POLICY, " ".join(("connect-src", *(reached or ("'none'",)))))
            request.setHeader("Content-Security-Policy", "; ".join(policy))
        return self._rendered(session, asked, view, shown, "page.html")

    async def _fragment(self, session: Session, view: View, asked: AdminRequest) -> str:
        """Return the part of a page that follows what happens, as it is now."""
        return self._rendered(session, asked, view, await view.look(asked), "fragment.html")

    def _rendered(
        self,
        session: Session,
        asked: AdminRequest,
        view: View,
        shown: Mapping[str, object],
        layout: str,
    ) -> str:
        return self._templates.get_template(view.template).render(
            {
                "layout": layout,
                "view": view,
                "session": session,
                "role": asked.role,
                "may": lambda name: asked.role >= self._actions[name].role,
                "may_see": lambda path: asked.role >= self._views[path].role,
                "query": asked.query,
                "link": link,
                **shown,
            }
        )

    def _show(
        self, request: Any, session: Session | None, template: str, shown: Mapping[str, object]
    ) -> None:
        role = None if session is None else self._sessions.role(session)
        text = self._templates.get_template(template).render(
            {"session": session, "role": role, "link": link, "view": None, **shown}
        )
        self._send(request, text)

    # --- actions

    async def _act(self, request: Any, session: Session, method: str, name: str) -> None:
        action = self._actions.get(name)
        if action is None:
            raise _not_found()
        form = _form(request) if method == "POST" else {}
        asked = self._asked(request, session, form)
        doing = method == "POST" and "check" not in form
        host = peer_host(request.getClientAddress())
        plan = self._planned(request, session, action, asked, doing)
        if doing:
            plan.outcome = await audited(self._log, session.user, host, plan, self._routes, asked)
            request.setResponseCode(plan.status.value)
        else:
            await plan.find(self._routes, asked)
            if action.dry_run and (method == "POST" or plan.is_complete):
                plan.foreseen = await plan.tried(self._routes, asked)
        partial = request.getHeader("HX-Request") == "true"
        template = "asked.html" if partial else "asked_page.html"
        self._show(request, session, template, {"title": action.title, "asked": plan})

    def _planned(
        self, request: Any, session: Session, action: Action, asked: AdminRequest, doing: bool
    ) -> Asked:
        """Return an action that may be done.

        :raises Refused: it may not; that is logged if it was to be done.
        """
        address = self._address(request)
        try:
            if request.method == b"POST":
                self._prove(request, session, asked.body)
            _check_role(action.role, asked)
            plan = Asked(action, action.given(asked), address)
            plan.check()
        except Refused as refused:
            if doing:
                host = peer_host(request.getClientAddress())
                audit_refusal(self._log, session.user, host, action, asked, refused.text, address)
            raise
        return plan

    async def _edit(self, request: Any, session: Session, method: str) -> None:
        """Show a message that is edited. Each time that it is shown is logged."""
        form = _form(request) if method == "POST" else {}
        asked = self._asked(request, session, form)
        plan = self._planned(request, session, LOOK_TO_EDIT, asked, method == "POST")
        if method == "GET":
            await plan.find(self._routes, asked)
        host = peer_host(request.getClientAddress())
        shown = await editor(self._log, host, plan, self._routes, asked)
        request.setResponseCode(plan.status.value)
        self._show(request, session, "edit.html", shown)

    # --- log-in

    async def _log_in(self, request: Any, method: str) -> None:
        shown = {"title": "Log in", "user": "", "problem": "", "to": ""}
        if method == "GET":
            to = {name: values[-1] for name, values in request.args.items()}.get(b"to", b"")
            self._show(
                request, None, "login.html", {**shown, "to": _own(to.decode("utf-8", "replace"))}
            )
            return
        form = _form(request)
        self._check_origin(request)
        user, to = form.get("user", ""), _own(form.get("to", ""))
        host = peer_host(request.getClientAddress())
        try:
            identity = await self._identify(user, form.get("password", ""), host)
        except Refused as refused:
            request.setResponseCode(refused.status.value)
            self._show(
                request,
                None,
                "login.html",
                {**shown, "user": user, "problem": refused.text, "to": to},
            )
            return
        before = self._session(request)
        if before is not None:
            self._sessions.end(before)
        token, session = self._sessions.open(identity, host)
        request.let_in(identity)
        self._log.info(
            "{user} logged in to the console from {host} as {role}",
            user=session.user,
            host=host,
            role=identity.role.word,
        )
        self._set_cookie(request, token, int(self._sessions.life_s))
        self._redirect(request, to or ROOT)

    def _to_login(self, request: Any, path: str) -> None:
        if path.startswith("live/") or request.getHeader("HX-Request") == "true":
            # A script asks: it is to load the page again, which leads to the log-in.
            request.setResponseCode(HTTPStatus.FORBIDDEN.value)
            request.setHeader("HX-Refresh", "true")
            self._send(request, "")
            return
        uri = request.uri.decode("ascii", "replace")
        to = _own(uri) if request.method == b"GET" else ""
        self._redirect(request, f"{ROOT}login" + (f"?{urlencode({'to': to})}" if to else ""))

    def _cookie(self, request: Any) -> str:
        # Cookies do not tell ports apart, and there may be several gateways on a machine.
        name = f"gateway-{request.getHost().port}"
        return f"__Host-{name}" if self._secure else name

    def _set_cookie(self, request: Any, token: str, max_age: int) -> None:
        # Twisted writes it as it is given.
        request.addCookie(
            self._cookie(request),
            token,
            path="/",
            max_age=str(max_age),
            secure=self._secure,
            httpOnly=True,
            sameSite="strict",
        )

    def _prove(self, request: Any, session: Session, form: Mapping[str, str]) -> None:
        """Check that a page of this console makes a change.

        :raises Refused: another does.
        """
        self._check_origin(request)
        if not session.proves(form.get("csrf", "")):
            raise _foreign("the form is of another session: load the page again")

    def _check_origin(self, request: Any) -> None:
        site = request.getHeader("Sec-Fetch-Site")
        if site is not None:
            if site != "same-origin":
                raise _foreign("the form was sent by another site")
            return
        origin = request.getHeader("Origin")
        if origin is None or urlsplit(origin).netloc != (request.getHeader("Host") or ""):
            raise _foreign("the request does not say that it comes from this site")

    def _address(self, request: Any) -> str:
        """Return the scheme, host and port that the browser asks.

        A proxy may speak TLS for this service, so that only the page knows its scheme.
        """
        here = request.getHost()
        host = request.getHeader("Host") or f"{here.host}:{here.port}"
        page = request.getHeader("Origin") or request.getHeader("Referer") or ""
        scheme, _, rest = page.partition("://")
        if scheme not in ("http", "https") or rest.partition("/")[0] != host:
            scheme = "https" if self._secure else "http"
        return f"{scheme}://{host}"

    # --- answers

    def _send_static(self, request: Any, name: str) -> None:
        found = self._static.get(name)
        if found is None:
            raise _not_found()
        body, _ = found
        request.setHeader("Content-Type", _TYPES[name.rpartition(".")[2]])
        # Its address changes with it.
        request.setHeader("Cache-Control", "private, max-age=31536000, immutable")
        self._finish(request, body)

    def _redirect(self, request: Any, to: str) -> None:
        request.setResponseCode(HTTPStatus.SEE_OTHER.value)
        request.setHeader("Location", to)
        self._finish(request, b"")

    def _send(self, request: Any, text: str) -> None:
        request.setHeader("Content-Type", _HTML)
        self._finish(request, text.encode("utf-8", "backslashreplace"))

    @staticmethod
    def _finish(request: Any, body: bytes) -> None:
        if request.gone:
            return
        request.setHeader("Content-Length", str(len(body)))
        request.write(body)
        request.finish()


def link(path: str, **query: object) -> str:
    """Return the address of a page, with the parameters that are not empty."""
    given = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return (
        ROOT + path + (f"?{urlencode(given, quote_via=quote, errors='replace')}" if given else "")
    )


def _own(to: str) -> str:
    """Return where to go after the log-in: a page of the console, or ""."""
    return to if to.startswith(ROOT) and to.isprintable() and "\\" not in to else ""


def _form(request: Any) -> dict[str, str]:
    content_type = (request.getHeader("Content-Type") or "").split(";")[0].strip().lower()
    if content_type != _FORM:
        raise Refused(f"expected a form, {_FORM}", "", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    try:
        fields = parse_qsl(
            request.content.read().decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise Refused("the form cannot be read", "") from None
    return dict(fields)


def _host(request: Any) -> str:
    try:
        return urlsplit(f"//{request.getHeader('Host') or ''}").hostname or ""
    except ValueError:
        return ""


def _check_role(role: Role, asked: AdminRequest) -> None:
    if asked.role < role:
        raise Refused(
            f"that needs the role {role.word}, and yours is {asked.role.word}",
            "forbidden",
            HTTPStatus.FORBIDDEN,
        )


def _foreign(text: str) -> Refused:
    return Refused(text, "forbidden", HTTPStatus.FORBIDDEN)


def _not_found() -> Refused:
    return Refused("there is no such page", "not_found", HTTPStatus.NOT_FOUND)


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Return the files that pages load, each with a tag that changes with it."""
    folder = files("gateway.admin.console").joinpath("static")
    found: dict[str, tuple[bytes, str]] = {}
    for place, prefix in ((folder, ""), (folder.joinpath("vendored"), "vendored/")):
        for file in place.iterdir():
            if file.is_file() and file.name.rpartition(".")[2] in _TYPES:
                body = file.read_bytes()
                found[prefix + file.name] = (body, sha256(body).hexdigest()[:12])
    return found
