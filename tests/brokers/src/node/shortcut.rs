//! Commands of `rabbitmqctl` that tests run often, as what it would ask the node to do: `rabbitmqctl` itself needs a second of processor time
//! to start.

use anyhow::{Context as _, Result};

/// Returns what the node evaluates in place of `rabbitmqctl` with these arguments; `None`: only `rabbitmqctl` can do that. [`outcome`] reads
/// what it prints.
pub(super) fn shortcut(arguments: &[&str]) -> Option<String> {
    let done = match *arguments {
        ["list_queues", ref columns @ ..] => return Some(when_running(&list_queues(columns))),
        ["set_permissions", user, configure, write, read] => format!(
            "rabbit_auth_backend_internal:set_permissions({}, <<\"/\">>, {}, {}, {}, {US})",
            binary(user),
            binary(configure),
            binary(write),
            binary(read)
        ),
        ["set_policy", name, pattern, definition, "--apply-to", to]
        | ["set_policy", "--apply-to", to, name, pattern, definition] => format!(
            "rabbit_policy:parse_set(<<\"/\">>, {}, {}, {}, 0, {}, {US})",
            binary(name),
            binary(pattern),
            binary(definition),
            binary(to)
        ),
        ["add_user", user, password] => {
            format!("rabbit_auth_backend_internal:add_user({}, {}, {US})", binary(user), binary(password))
        }
        ["clear_policy", name] => format!("rabbit_policy:delete(<<\"/\">>, {}, {US})", binary(name)),
        ["set_vm_memory_high_watermark", "absolute", limit] => {
            format!("vm_memory_monitor:set_vm_memory_high_watermark({{absolute, \"{limit}\"}})")
        }
        ["set_disk_free_limit", limit] => format!("rabbit_disk_monitor:set_disk_free_limit(\"{limit}\")"),
        _ => return None,
    };
    Some(when_running(&format!("case {done} of ok -> ok; Said -> throw(Said) end")))
}

/// Returns what `rabbitmqctl` would have printed; an error if the node did not do all of it.
pub(super) fn outcome(printed: &str) -> Result<String> {
    let done = printed.rsplit_once(DONE).map(|(before, _)| before.to_owned());
    done.with_context(|| format!("the node says: {printed}"))
}

/// What is printed last, before the value of the expression.
const DONE: &str = "\n(that was all)";
/// What is printed while the node starts, in the words of `rabbitmqctl`.
pub(super) const STILL_STARTS: &str = "requires the 'rabbit' app to be running";
/// Who sets it.
const US: &str = "<<\"redrive\">>";

/// The line break ends the expression.
fn when_running(expression: &str) -> String {
    format!(
        "try true = rabbit:is_running() orelse throw(\"{STILL_STARTS}\"), {expression}, io:format(\"~n(that was all)\") \
         catch _:Thrown -> io:format(\"~p\", [Thrown]) end.\n"
    )
}

/// One line for each queue, its columns divided by tabs.
fn list_queues(columns: &[&str]) -> String {
    let columns = columns.join(", ");
    format!(
        "Text = fun F({{resource, _, _, Name}}) -> Name; F(All) when is_list(All) -> lists:join(\", \", [F(One) || One <- All]); \
         F(One) -> io_lib:format(\"~s\", [case is_integer(One) of true -> integer_to_list(One); false -> One end]) end, \
         [io:format(\"~ts~n\", [lists:join(\"\\t\", [Text(Value) || {{_, Value}} <- Queue])]) \
         || Queue <- rabbit_amqqueue:info_all(<<\"/\">>, [{columns}])]"
    )
}

/// A string as an Erlang binary.
fn binary(text: &str) -> String {
    format!("<<\"{}\"/utf8>>", text.replace('\\', "\\\\").replace('"', "\\\""))
}
