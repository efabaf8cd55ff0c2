"""Takes policies from the Hugging Face Hub: `hf://user/name[@revision]`.

A revision, by default the newest, is resolved to a commit before anything is started, and that commit is what a run
stores. A policy of a commit is downloaded once, into the cache of this program, and found there without the network.
It is a stranger's file like any other: who loads it checks it.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from engine.errors import UserError
from engine.runtime.files import make_private, program_folder, way_into
from engine.runtime.text import install_command

SCHEME = "hf://"
POLICY = "policy.safetensors"
"""Its name there."""
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_ADDRESS = re.compile(rf"{SCHEME}({_PART}/{_PART})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,199}}))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_BYTES = 2**28
_ANSWER_S = 20.0


@dataclass(frozen=True)
class Address:
    repository: str
    """`user/name`."""
    revision: str | None
    """A branch, a tag or a commit; None: the newest."""

    @classmethod
    def of(cls, text: str) -> Address:
        """Raises `UserError` if it is none."""
        found = _ADDRESS.fullmatch(text)
        if found is None or ".." in text or "--" in found[1]:
            raise UserError(f"{text}: must be {SCHEME}user/name or {SCHEME}user/name@revision")
        return cls(found[1], found[2])

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}" + f"@{self.revision}" * (self.revision is not None)

    @property
    def kept(self) -> Path:
        """Where a commit's policy is kept."""
        return program_folder("CACHE") / "hub" / f"{self.repository.replace('/', '--')}@{self.revision}.safetensors"

    @property
    def is_kept(self) -> bool:
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None and self.kept.is_file()


def kept(text: str) -> Path | None:
    """The file of a policy that is here, for an address with a commit; asks nobody."""
    with contextlib.suppress(UserError):
        address = Address.of(text)
        return address.kept if address.is_kept else None
    return None


def pinned(text: str) -> str:
    """The address with the commit that it means now, whose policy is here then. Raises `UserError`."""
    address = Address.of(text)
    if address.is_kept:
        return text
    with asking(address):
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        found = HfApi().model_info(
            address.repository, revision=address.revision, files_metadata=True, timeout=_ANSWER_S
        )
        name, size = _policy_among(address, {each.rfilename: each.size or 0 for each in found.siblings or ()})
        if size > _MAX_BYTES:
            raise UserError(f"{address}: {name} must have at most {_MAX_BYTES:,} bytes, got {size:,}")
        if found.sha is None or not _COMMIT.fullmatch(found.sha):
            raise UserError(f"{address}: the Hub names no commit")
        fixed = Address(address.repository, found.sha)
        if not fixed.is_kept:
            folder = fixed.kept.parent
            if flaw := way_into("CACHE", "hub"):
                raise UserError(f"{folder}: can't hold policies, because {flaw}; set XDG_CACHE_HOME to another folder")
            make_private(folder)
            with tempfile.TemporaryDirectory(dir=folder) as partial:
                file = hf_hub_download(address.repository, name, revision=fixed.revision, local_dir=partial)
                Path(file).replace(fixed.kept)
    return str(fixed)


def _policy_among(address: Address, files: dict[str, int]) -> tuple[str, int]:
    """The name and the size in bytes of the policy in a repository."""
    policies = [name for name in files if name.endswith(".safetensors")]
    name = POLICY if POLICY in policies else policies[0] if len(policies) == 1 else None
    if name is None:
        has = f"has {', '.join(sorted(policies)[:5])}" if policies else "has no .safetensors file"
        raise UserError(f"{address}: must have a {POLICY}, but {has}")
    return name, files[name]


@contextlib.contextmanager
def asking(address: Address) -> Iterator[None]:
    """Talk to the Hub. Raises `UserError`, one line, for whatever it refuses or does not answer."""
    if find_spec("huggingface_hub") is None:
        raise UserError(f"{address} needs the Hub's own library; install it with: {install_command('hub')}")
    import httpx2
    from huggingface_hub import errors

    log_in = "log in with: hf auth login (or set HF_TOKEN)"
    try:
        yield
    except errors.GatedRepoError:
        raise UserError(f"{address}: its owner grants access on its page; then {log_in}") from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{address}: has no revision {address.revision}") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{address}: there is no such repository, or it is private; if it is, {log_in}") from None
    except errors.LocalTokenNotFoundError:
        raise UserError(f"{address}: {log_in}") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        why = log_in if status in (401, 403) else "try again later" if status >= 500 else str(error).partition("\n")[0]
        raise UserError(f"{address}: the Hub answers with status {status}; {why}") from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError, httpx2.HTTPError, OSError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{address}: the Hub can't be reached ({why})") from None
    except ValueError as error:  # a licence that it does not know
        raise UserError(f"{address}: the Hub refuses it ({' '.join(str(error).split())})") from None
