"""The wordings of errors, modelled on those of real interfaces.

A wording has a text for every status that a tool can answer with. Where an error names
another tool, its name is written between two texts.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")  # str, or int: a symbol
U = TypeVar("U")
Around = tuple[T, T]  # before the name of the other tool, and after it


class Wording(NamedTuple, Generic[T]):
    """How errors are written: `open`, a message, and `close`.

    Attributes:
      open: before the message.
      close: after it.
      bad_argument: an argument is missing, unknown, or of the wrong type.
      wrong_code: the code of another tool is missing or wrong.
      out_of_order: another tool must be called before.
      transient: it will work when it is called again.
      permanent: it will never work.
      no_record: what is to be read or changed does not exist.
      moved: it was replaced by an unnamed tool.
      moved_guided: it was replaced by the named tool.
    """

    open: T
    close: T
    bad_argument: T
    wrong_code: Around[T]
    out_of_order: Around[T]
    transient: T
    permanent: T
    no_record: T
    moved: T
    moved_guided: Around[T]

    def mapped(self, function: Callable[[T], U]) -> "Wording[U]":
        """Return the wording with a function applied to each of its texts."""
        fields: Any = (
            tuple(map(function, x)) if isinstance(x, tuple) else function(x)
            for x in self
        )
        return Wording(*fields)


# The first wording is the default. Families of interfaces are for training or for
# evaluation as a whole.
TRAIN: dict[str, Wording[str]] = {
    "plain": Wording(
        open='{"error":"',
        close='"}',
        bad_argument="wrong arguments",
        wrong_code=("needs the code from ", ""),
        out_of_order=("call first ", ""),
        transient="failed, try again",
        permanent="out of service for good",
        no_record="no such record",
        moved="replaced",
        moved_guided=("replaced by ", ""),
    ),
    "http": Wording(
        open="HTTP/1.1 ",
        close="",
        bad_argument="400 Bad Request",
        wrong_code=("401 Unauthorized: code issued by ", " expected"),
        out_of_order=("412 Precondition Failed: ", " was not called"),
        transient="503 Service Unavailable, Retry-After: 0",
        permanent="410 Gone",
        no_record="404 Not Found",
        moved="301 Moved Permanently",
        moved_guided=("308 Permanent Redirect, Location: ", ""),
    ),
    "rest": Wording(
        open='{"error":{"message":"',
        close='"}}',
        bad_argument="Invalid parameter",
        wrong_code=("Invalid or missing code. Obtain one from ", ""),
        out_of_order=("This operation requires a prior call to ", ""),
        transient="Internal error. Please retry your request",
        permanent="This endpoint has been permanently disabled",
        no_record="The requested resource does not exist",
        moved="This endpoint has moved",
        moved_guided=("This endpoint has moved. Use ", " instead"),
    ),
    "validation": Wording(
        open='{"detail":[{"msg":"',
        close='"}]}',
        bad_argument="value is not a valid argument",
        wrong_code=("code: not one that ", " has issued"),
        out_of_order=("prerequisite ", " is missing"),
        transient="upstream timed out, send it again",
        permanent="operation is withdrawn and will not return",
        no_record="object not found",
        moved="operation was renamed",
        moved_guided=("operation was renamed to ", ""),
    ),
    "grpc": Wording(
        open="rpc error: code = ",
        close="",
        bad_argument="InvalidArgument desc = bad request",
        wrong_code=("Unauthenticated desc = want code of ", ""),
        out_of_order=("FailedPrecondition desc = want ", " first"),
        transient="Unavailable desc = transient failure",
        permanent="Unimplemented desc = shut down for good",
        no_record="NotFound desc = no such entity",
        moved="Unimplemented desc = method replaced",
        moved_guided=("Unimplemented desc = method replaced by ", ""),
    ),
    "traceback": Wording(
        open='File "api.py", line 31\n',
        close="",
        bad_argument="TypeError: unexpected arguments",
        wrong_code=("PermissionError: pass the code that ", "() returned"),
        out_of_order=("RuntimeError: call ", "() before this"),
        transient="TimeoutError: timed out, retry",
        permanent="NotImplementedError: no longer supported",
        no_record="KeyError: not in the table",
        moved="AttributeError: it was renamed",
        moved_guided=("AttributeError: it was renamed, did you mean ", "?"),
    ),
    "problem": Wording(
        open='{"type":"about:blank","title":"',
        close='"}',
        bad_argument="Request parameters are not valid",
        wrong_code=("A valid code of ", " is needed"),
        out_of_order=("Not possible before ", ""),
        transient="Temporarily overloaded, repeat the request",
        permanent="Discontinued, do not repeat the request",
        no_record="No entry was found",
        moved="Superseded",
        moved_guided=("Superseded by ", ""),
    ),
    "graphql": Wording(
        open='{"errors":[{"message":"',
        close='"}]}',
        bad_argument="Argument has an invalid value",
        wrong_code=("Forbidden: requires code of ", ""),
        out_of_order=("Precondition: query ", " earlier"),
        transient="Something went wrong, run the query again",
        permanent="Field was removed from the schema",
        no_record="Could not resolve to a node",
        moved="Field is gone, a successor exists",
        moved_guided=("Field is gone, query ", " in its place"),
    ),
    "quota": Wording(
        open="An error occurred: ",
        close="",
        bad_argument="ValidationException, malformed input",
        wrong_code=("AccessDeniedException, code from ", " not accepted"),
        out_of_order=("ConflictException, ", " has to happen first"),
        transient="ThrottlingException, rate exceeded, try later",
        permanent="ServiceRetiredException, not available any more",
        no_record="ResourceNotFoundException, unknown item",
        moved="MovedException, succeeded by another operation",
        moved_guided=("MovedException, succeeded by ", ""),
    ),
}
TEST: dict[str, Wording[str]] = {
    "shell": Wording(
        open="error: ",
        close=" (exit status 1)",
        bad_argument="usage: unrecognised option",
        wrong_code=("token rejected, run '", "' to get one"),
        out_of_order=("run '", "' beforehand"),
        transient="connection reset by peer, rerun",
        permanent="command was uninstalled",
        no_record="nothing of that name here",
        moved="command was superseded",
        moved_guided=("command was superseded, run '", "'"),
    ),
    "json_rpc": Wording(
        open='{"code":-32000,"message":"',
        close='"}',
        bad_argument="Invalid params",
        wrong_code=("Code check failed, issuer is ", ""),
        out_of_order=("Wrong state, ", " pending"),
        transient="Server busy, resend",
        permanent="Method terminated, resending is useless",
        no_record="Lookup gave no match",
        moved="Method has a new name",
        moved_guided=("Method has a new name: ", ""),
    ),
    "soap": Wording(
        open="<Fault>",
        close="</Fault>",
        bad_argument="Client.MalformedInput",
        wrong_code=("Client.NoCredential, see ", ""),
        out_of_order=("Client.Sequence, earlier: ", ""),
        transient="Server.Glitch, once more please",
        permanent="Server.Decommissioned",
        no_record="Client.UnknownKey",
        moved="Server.Migrated",
        moved_guided=("Server.Migrated, now: ", ""),
    ),
    "apology": Wording(
        open="Sorry, ",
        close=".",
        bad_argument="I do not understand what you passed me",
        wrong_code=("I must see what ", " handed out"),
        out_of_order=("I wait for ", ""),
        transient="that went wrong, it should work next time",
        permanent="I was switched off and will stay so",
        no_record="I do not know of this",
        moved="somebody else does this now",
        moved_guided=("", " does this now"),
    ),
}
WORDINGS = {**TRAIN, **TEST}
# The range of each split, without the normal wording.
RANGES = (1, len(TRAIN)), (len(TRAIN), len(WORDINGS))
