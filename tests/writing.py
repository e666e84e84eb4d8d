"""What tools answer, written in plain Python, to compare with what is compiled."""

from openagent_jax.text import error_texts, result_forms
from openagent_jax.text import style as styles


def result(pairs, typed, which, bare=()):
    """Return a result of flat fields.

    Args:
      pairs: the texts of the fields.
      typed: the names of those that typed forms write without quotes.
      which: the number of the form.
      bare: the names of those that JSON always writes without quotes.
    """
    form = [*result_forms.FORMS.values()][which]
    plain = {*bare, *(typed if form.is_typed else ())}
    if form.thousands or form.point:
        for key in {*typed} & pairs.keys():
            if pairs[key][-1:].isdecimal():
                whole, _, rest = pairs[key].partition(".")
                whole = f"{int(whole):,}".replace(",", form.thousands)
                sign = "-" * (pairs[key][0] == "-" and whole[0] != "-")
                pairs = {
                    **pairs,
                    key: sign + whole + (rest and (form.point or ".") + rest),
                }
                plain -= {key}
    if form.is_json:
        fields = (
            f'"{k}":{v}' if k in plain else f'"{k}":"{v}"' for k, v in pairs.items()
        )
        return form.open + "{" + ",".join(fields) + "}" + form.close
    cells = {
        k: form.before[k in plain] + v + form.after[k in plain]
        for k, v in pairs.items()
    }
    if form.is_table:
        head = form.comma.join(pairs) + form.head_end
        rules = form.rule * len(pairs) + form.rule_end
        body = form.cell_comma.join(cells.values())
        return form.open + head + rules + body + form.close
    again = {k: k + form.end_key if form.end_key else "" for k in pairs}
    fields = (form.key + k + form.equals + v + again[k] for k, v in cells.items())
    return form.open + form.comma.join(fields) + form.close


def notice(name, which):
    """Return what a result says below itself, if a tool will replace its own."""
    return name.join(error_texts.WORDINGS[which].deprecated)


def error(status, about, which):
    """Return an error.

    Args:
      status: see `text.style`.
      about: the tool, the number or the arguments that it names; "" for none.
      which: the number of the wording.
    """
    wording = error_texts.WORDINGS[which]
    message = {
        styles.BAD_FORMAT: styles.BAD_FORMAT_TEXT,
        styles.UNKNOWN_TOOL: styles.UNKNOWN_TOOL_TEXT,
        styles.BAD_ARGUMENT: wording.bad_argument,
        styles.WRONG_CODE: wording.wrong_code,
        styles.OUT_OF_ORDER: wording.out_of_order,
        styles.TRANSIENT: wording.transient,
        styles.PERMANENT: wording.permanent,
        styles.NO_RECORD: wording.no_record,
        styles.EXPIRED_CODE: wording.expired_code,
        styles.STALE: wording.stale,
        styles.RATE_LIMITED: wording.rate_limit,
        styles.SCHEMA_CHANGED: wording.schema_changed,
        styles.MOVED: wording.moved_guided if about else wording.moved,
    }[status]
    if not isinstance(message, str):
        message = about.join(message)
    return wording.open + message + wording.close
