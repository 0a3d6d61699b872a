//! Template limit: work that a few instructions cause. A filter, a method or a comparison takes one instruction,
//! however large its values are: in a loop over the messages, `messages | selectattr(...)` is quadratic. So filters,
//! methods and printed values are charged by size, and [`charged_operands`] adds filters that charge operands.

use minijinja::functions::Function;
use minijinja::value::{FunctionArgs, FunctionResult, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

mod operands;

pub(crate) use operands::charged_operands;

/// Name of the filter that returns the limit; no template uses it.
const LIMIT: &str = "__limit";
/// Cost of a list's element that is copied.
const ELEMENT: usize = 24;
/// Cost of a list's element that a filter or a comparison examines.
const EXAMINED: usize = 64;
/// Bytes of a text that are scanned at the cost of one that is copied.
const SCANNED: usize = 8;
/// Cost of a byte of a text that is sliced: characters are counted one by one.
const SLICED: usize = 4;

/// Work that a rendering has left, in copied bytes: at most about four nanoseconds each, and far less in a long text.
struct WorkLeft(usize);

/// Sets the limit of a rendering.
pub(crate) fn set_limit(environment: &mut Environment<'_>, limit: usize) {
    // Unlike a variable, a filter cannot be replaced by an argument of the request.
    environment.add_filter(LIMIT, move || limit);
}

/// Spends work: more than the limit in a rendering is an error.
pub(crate) fn charge(state: &mut State<'_, '_>, cost: usize) -> Result<(), Error> {
    if cost == 0 {
        return Ok(());
    }
    let left = match state.get_extension::<WorkLeft>() {
        Some(left) => left.0,
        None => usize::try_from(state.apply_filter(LIMIT, &[])?)?,
    };
    let left = left.checked_sub(cost).ok_or(ErrorKind::OutOfFuel)?;
    state.get_or_insert_extension_with(|| WorkLeft(left)).0 = left;
    Ok(())
}

/// Returns the number of a value's elements; 0 of values without elements, and of texts.
fn elements(value: &Value) -> usize {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
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

/// Returns the cost of scanning a text.
pub(crate) fn of_scan(value: &Value) -> usize {
    text_bytes(value) / SCANNED
}

/// Returns the cost of a filter. It may examine each element of one list for each element of another.
fn of_filter(args: &[Value]) -> usize {
    let args = || args.iter().filter(|arg| !arg.is_kwargs());
    let lists = args().map(elements).filter(|count| *count > 0);
    let examined = lists.fold(0, |product: usize, count| product.max(1).saturating_mul(count));
    let texts: usize = args().map(text_bytes).sum();
    // A text may be searched once for each element.
    texts.saturating_add(examined.saturating_mul(EXAMINED.saturating_add(texts / SCANNED)))
}

/// Registers a filter that is charged.
pub(crate) fn add_charged<F, Rv, Args>(environment: &mut Environment<'_>, name: &'static str, filter: F)
where
    F: Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let filter = Value::from_function(filter);
    environment.add_filter(
        name,
        move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            charge(state, of_filter(&args))?;
            let result = filter.call(state, &args)?;
            charge(state, of_copy(&result))?;
            Ok::<_, Error>(result)
        },
    );
}

/// Registers the filters of the template engine whose work depends on the size of their values.
pub(crate) fn register(environment: &mut Environment<'_>) {
    add_charged(environment, "batch", filters::batch);
    add_charged(environment, "capitalize", filters::capitalize);
    add_charged(environment, "chain", filters::chain);
    add_charged(environment, "dictsort", filters::dictsort);
    add_charged(environment, "escape", filters::escape);
    add_charged(environment, "e", filters::escape);
    add_charged(environment, "format", filters::format);
    add_charged(environment, "groupby", filters::groupby);
    add_charged(environment, "indent", filters::indent);
    add_charged(environment, "items", filters::items);
    add_charged(environment, "join", filters::join);
    add_charged(environment, "lines", filters::lines);
    add_charged(environment, "list", filters::list);
    add_charged(environment, "lower", filters::lower);
    add_charged(environment, "map", filters::map);
    add_charged(environment, "max", filters::max);
    add_charged(environment, "min", filters::min);
    add_charged(environment, "pprint", filters::pprint);
    add_charged(environment, "reject", filters::reject);
    add_charged(environment, "rejectattr", filters::rejectattr);
    add_charged(environment, "reverse", filters::reverse);
    add_charged(environment, "safe", filters::safe);
    add_charged(environment, "select", filters::select);
    add_charged(environment, "selectattr", filters::selectattr);
    add_charged(environment, "slice", filters::slice);
    add_charged(environment, "sort", filters::sort);
    add_charged(environment, "split", filters::split);
    add_charged(environment, "sum", filters::sum);
    add_charged(environment, "title", filters::title);
    add_charged(environment, "unique", filters::unique);
    add_charged(environment, "upper", filters::upper);
    add_charged(environment, "zip", filters::zip);
    operands::register(environment);
}
