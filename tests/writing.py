"""What tools answer, written in plain Python, to compare with what is compiled."""

from openagent_jax.text import error_texts, result_forms
from openagent_jax.text import style as styles


def result(pairs, typed, which):
    """Return a result of flat fields.

    Args:
      pairs: the texts of the fields.
      typed: the names of those that typed forms write without quotes.
      which: the number of the form.
    """
    form = [*result_forms.FORMS.values()][which]
    bare = {*typed} if form.is_typed else set()
    if form.is_json:
        fields = (
            f'"{k}":{v}' if k in bare else f'"{k}":"{v}"' for k, v in pairs.items()
        )
        return form.open + "{" + ",".join(fields) + "}" + form.close
    cells = {
        k: form.before[k in bare] + v + form.after[k in bare] for k, v in pairs.items()
    }
    if form.is_table:
        head = form.comma.join(pairs) + form.head_end
        rules = form.rule * len(pairs) + form.rule_end
        return (
            form.open + head + rules + form.cell_comma.join(cells.values()) + form.close
        )
    again = {k: k + form.end_key if form.end_key else "" for k in pairs}
    fields = (form.key + k + form.equals + v + again[k] for k, v in cells.items())
    return form.open + form.comma.join(fields) + form.close


def error(status, name, which):
    """Return an error.

    Args:
      status: see `text.style`.
      name: of the tool that it names; "" for none.
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
        styles.MOVED: wording.moved_guided if name else wording.moved,
    }[status]
    if not isinstance(message, str):
        message = name.join(message)
    return wording.open + message + wording.close
