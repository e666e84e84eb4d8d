"""Goals that chain tools: which result can be an argument of which tool."""

from openagent_jax.drafting import drafting
from tests.drafting.examples import (
    TEXT,
    faults,
    function,
    goals_of,
    openai,
    returning,
    tools_of,
)


class TestChains:
    def test_fields_that_are_arguments_elsewhere_come_first(self):
        many = {"note": TEXT, "size": TEXT, "ticket_id": TEXT}
        tools = [
            returning("find_note", many, owner=TEXT),
            returning("drop_ticket", {"kind": TEXT}, ticket_id=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        returns = tools_of(draft)["find_note"]["returns"]
        assert list(returns) == ["ticket_id", "note"]
        assert "find_note_then_drop_ticket" in goals_of(draft)

    def test_a_field_that_is_also_an_argument_is_not_chained(self):
        """The caller knows its value already, so this tool comes last."""
        three = {"ticket_id": TEXT, "size": TEXT, "kind": TEXT}
        tools = [
            returning("touch_ticket", {"ticket_id": TEXT}, ticket_id=TEXT),
            returning("get_ticket", three, ticket_id=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        assert list(tools_of(draft)["get_ticket"]["returns"]) == ["size", "kind"]
        assert list(goals_of(draft)) == ["touch_ticket", "get_ticket"]

    def test_create_returns_an_id_and_delete_a_receipt(self):
        tools = [
            function("create_ticket", "", message=TEXT),
            function("delete_ticket", "", reason=TEXT),
            function("show_ticket", "", ticket_id=TEXT),
        ]
        tools = tools_of(drafting.draft(openai(*tools), "chains"))
        assert tools["create_ticket"]["returns"] == {"ticket_id": "ticket_id"}
        assert tools["delete_ticket"]["returns"] == {"receipt": "receipt_number"}

    def test_an_enum_is_not_chained(self):
        level = {"enum": ["low", "high"]}
        tools = [
            returning("find_level", {"level": level, "size": TEXT}, owner=TEXT),
            returning("use_level", {"kind": TEXT}, level=level),
        ]
        assert len(drafting.draft(openai(*tools), "chains").domain["goals"]) == 2

    def test_the_answer_is_an_enum_only_if_there_is_nothing_else(self):
        level = {"enum": ["low", "high"]}
        tool = returning("find_level", {"level": level, "size": TEXT}, owner=TEXT)
        (goal,) = drafting.draft(openai(tool), "chains").domain["goals"]
        assert goal["answer"] == "#0.size"
        assert all("the size" in text for text in goal["phrases"]["train"])

    def test_arguments_of_one_name_and_two_types(self, tmp_path):
        tools = [
            returning("find_seller", {"ticket_id": TEXT}, name=TEXT),
            function("rename_ticket", "", ticket_id=TEXT, name=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        goal = goals_of(draft)["find_seller_then_rename_ticket"]
        assert goal["constants"] == {"name": "seller_name", "name_2": "ticket_name"}
        assert faults(tmp_path, draft.domain) == []


def listing(name, record, **arguments):
    """A tool that returns a list of such records, called after what it lists."""
    records = {"type": "array", "items": {"type": "object", "properties": record}}
    return returning(f"find_{name}", {name: records}, **arguments)


def request(tools, name):
    made = goals_of(drafting.draft(openai(*tools), "chains"))
    return made[name]["phrases"]["train"][0].removeprefix("Please ")


class TestReferences:
    """What a request says of a value that a call before has returned."""

    def test_the_first_record_of_a_list(self):
        tools = [listing("open_tasks", {"task_id": TEXT, "size": TEXT}, owner=TEXT)]
        tools.append(function("copy_task", "Copy a task.", task_id=TEXT))
        assert request(tools, "find_open_tasks_then_copy_task") == (
            "find open tasks with owner {owner}, then copy a task with the task id of "
            "the first open task, then say done."
        )
        assert request(tools, "find_open_tasks").endswith(
            "tell me the task id of the first open task."
        )

    def test_a_name_without_meaning_is_completed(self):
        tools = [
            returning("find_buyer", {"name": TEXT}, owner=TEXT),
            function("greet_buyer", "Greet a buyer.", buyer_name=TEXT),
        ]
        text = request(tools, "find_buyer_then_greet_buyer")
        assert "greet a buyer with that buyer name" in text

    def test_two_values_of_one_kind_are_told_apart(self):
        """Else "that task id" could also be the one that the request gives."""
        tools = [
            returning("get_copy", {"task_id": TEXT}, owner=TEXT),
            function("link_tasks", "Link two tasks.", task_id=TEXT),
        ]
        tools[1]["parameters"]["properties"]["old"] = {"properties": {"task_id": TEXT}}
        tools[1]["parameters"]["required"].append("old")
        text = request(tools, "get_copy_then_link_tasks")
        assert "with the task id from that step and" in text
        assert "old task id {old_task_id}" in text

    def test_words_that_would_be_read_as_part_of_the_sentence_are_quoted(self):
        tools = [
            returning("find_path", {"refers_to": TEXT}, owner=TEXT),
            function("open_path", "Open a path.", refers_to=TEXT),
        ]
        text = request(tools, "find_path_then_open_path")
        assert "with that 'refers to' value" in text
