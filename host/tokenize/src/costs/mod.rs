//! Template limit: work that a few instructions cause. A filter, a method or a comparison takes one instruction,
//! however large its values are: in a loop over the messages, `messages | selectattr(...)` is quadratic. So filters,
//! methods and printed values are charged by size, and [`charged_operands`] adds filters that charge operands.

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

mod operands;

pub(crate) use operands::charged_operands;

/// Name of the global variable with the limit; no template uses it.
const LIMIT: &str = "__limit";
/// Cost of a list's element that is copied.
const ELEMENT: usize = 24;
/// Cost of a list's element that a filter or a comparison examines.
const EXAMINED: usize = 64;
/// Bytes of a text that are scanned at the cost of one that is copied.
const SCANNED: usize = 8;
/// Cost of a byte of a text that is sliced: characters are counted one by one.
const SLICED: usize = 4;

/// Work of a rendering, in copied bytes: about four nanoseconds each.
struct SpentWork {
    spent: usize,
    limit: usize,
}

/// Sets the limit of a rendering.
pub(crate) fn set_limit(environment: &mut Environment<'_>, limit: usize) {
    environment.add_global(LIMIT, limit);
}

/// Spends work: more than the limit in a rendering is an error.
pub(crate) fn charge(state: &mut State<'_, '_>, cost: usize) -> Result<(), Error> {
    if cost == 0 {
        return Ok(());
    }
    let limit = match state.get_extension::<SpentWork>() {
        Some(work) => work.limit,
        None => state
            .lookup(LIMIT)
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(usize::MAX),
    };
    let work = state.get_or_insert_extension_with(|| SpentWork { spent: 0, limit });
    work.spent = work.spent.saturating_add(cost);
    match work.spent > work.limit {
        true => Err(ErrorKind::OutOfFuel.into()),
        false => Ok(()),
    }
}

/// Returns the number of a value's elements; 0 of values without elements, and of texts.
fn elements(value: &Value) -> usize {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map => value.len().unwrap_or(0),
        ValueKind::Iterable => {
            let counted = || value.try_iter().map_or(0, Iterator::count);
            value.len().unwrap_or_else(counted)
        }
        _ => 0,
    }
}

fn text_bytes(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

/// Returns the cost of copying a value.
pub(crate) fn of_copy(value: &Value) -> usize {
    text_bytes(value).saturating_add(elements(value).saturating_mul(ELEMENT))
}

/// Returns the cost of a filter. It may examine each element of one list for each element of another.
fn of_filter(args: &[Value]) -> usize {
    let args = || {
        args.iter()
            .filter(|arg| Kwargs::try_from((*arg).clone()).is_err())
    };
    let lists = args().map(elements).filter(|count| *count > 0);
    let examined = lists.fold(0, |product: usize, count| product.max(1).saturating_mul(count));
    let texts: usize = args().map(text_bytes).sum();
    texts.saturating_add(examined.saturating_mul(EXAMINED))
}

/// Runs a filter that is registered under a hidden name, and charges it.
pub(crate) fn run_charged(state: &mut State<'_, '_>, hidden: &str, args: &[Value]) -> Result<Value, Error> {
    charge(state, of_filter(args))?;
    let result = state.apply_filter(hidden, args)?;
    charge(state, of_copy(&result))?;
    Ok(result)
}

/// Registers filters under hidden names, and charged ones under their own.
macro_rules! charged_filters {
    ($environment:expr, $($name:literal => $hidden:literal, $filter:expr;)*) => {$(
        $environment.add_filter($hidden, $filter);
        $environment.add_filter($name, |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            crate::costs::run_charged(state, $hidden, &args.into_values())
        });
    )*};
}

pub(crate) use charged_filters;

/// Registers the filters of the template engine whose work depends on the size of their values.
pub(crate) fn register(environment: &mut Environment<'_>) {
    charged_filters! {
        environment,
        "batch" => "__batch", filters::batch;
        "capitalize" => "__capitalize", filters::capitalize;
        "chain" => "__chain", filters::chain;
        "dictsort" => "__dictsort", filters::dictsort;
        "escape" => "__escape", filters::escape;
        "e" => "__e", filters::escape;
        "format" => "__format", filters::format;
        "groupby" => "__groupby", filters::groupby;
        "indent" => "__indent", filters::indent;
        "items" => "__items", filters::items;
        "join" => "__join", filters::join;
        "lines" => "__lines", filters::lines;
        "list" => "__list", filters::list;
        "lower" => "__lower", filters::lower;
        "map" => "__map", filters::map;
        "max" => "__max", filters::max;
        "min" => "__min", filters::min;
        "pprint" => "__pprint", filters::pprint;
        "reject" => "__reject", filters::reject;
        "rejectattr" => "__rejectattr", filters::rejectattr;
        "reverse" => "__reverse", filters::reverse;
        "safe" => "__safe", filters::safe;
        "select" => "__select", filters::select;
        "selectattr" => "__selectattr", filters::selectattr;
        "slice" => "__slice", filters::slice;
        "sort" => "__sort", filters::sort;
        "split" => "__split", filters::split;
        "sum" => "__sum", filters::sum;
        "title" => "__title", filters::title;
        "unique" => "__unique", filters::unique;
        "upper" => "__upper", filters::upper;
        "zip" => "__zip", filters::zip;
    }
    operands::register(environment);
}
