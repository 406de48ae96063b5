//! What `#[debug_handler]` adds to a function: one small item for each thing that may be wrong, at the place of that thing.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, GenericParam, ItemFn, PathArguments, ReturnType, Token, Type};

const MAX_ARGUMENTS: usize = 8;
const MAX_ARGUMENTS_BESIDE_BATCH: usize = 4;

/// The function as it is, with the checks behind it.
pub(crate) fn expand(options: TokenStream, function: &TokenStream) -> TokenStream {
    let checks = match checks(options, function) {
        Ok(checks) => quote!(const _: () = { #checks };),
        Err(error) => error.into_compile_error(),
    };
    quote!(#function #checks)
}

fn checks(options: TokenStream, function: &TokenStream) -> syn::Result<TokenStream> {
    let Options { state } = syn::parse2(options)?;
    let ItemFn { sig, .. } = syn::parse2(function.clone())
        .map_err(|_| Error::new(function.span(), "`#[debug_handler]` is for functions: `async fn`"))?;
    if let Some(parameter) =
        sig.generics.params.iter().find(|param| !matches!(param, GenericParam::Lifetime(_)))
    {
        return Err(Error::new(parameter.span(), "a function with type parameters cannot be checked"));
    }
    if sig.asyncness.is_none() && !answers_with_a_future(&sig.output) {
        return Err(Error::new(sig.fn_token.span, "a handler is an `async fn`: add `async`"));
    }
    let arguments = sig.inputs.iter().map(argument).collect::<syn::Result<Vec<_>>>()?;
    let state = match state {
        Some(state) => state,
        None => state_of(&arguments)?,
    };
    let batch = arguments.last().and_then(|last| inside(last, "Batch"));
    let (single, beside) = match &batch {
        Some(_) => (&[][..], &arguments[..arguments.len() - 1]),
        None => (&arguments[..], &[][..]),
    };
    let (most, found) =
        if batch.is_some() { (MAX_ARGUMENTS_BESIDE_BATCH, beside) } else { (MAX_ARGUMENTS, single) };
    if let Some(surplus) = found.get(most) {
        let beside = if batch.is_some() { " beside the `Batch`" } else { "" };
        let text = format!(
            "a handler has up to {most} arguments{beside}: extract several in one tuple, or implement `FromDelivery`"
        );
        return Err(Error::new(surplus.span(), text));
    }
    let mut checks = TokenStream::new();
    let mut require = |what: &dyn Spanned, kind: &str, bound: TokenStream| {
        let name = format_ident!("{kind}", span = what.span());
        checks.extend(
            quote_spanned!(what.span()=> #[allow(dead_code, non_snake_case)] fn #name() where #bound {}),
        );
    };
    for (index, argument) in single.iter().enumerate() {
        let bound = quote_spanned!(argument.span()=> #argument: ::redrive::FromDelivery<#state> + ::core::marker::Send);
        require(argument, &format!("argument_{index}"), bound);
    }
    for (index, argument) in beside.iter().enumerate() {
        let bound = quote_spanned!(argument.span()=>
            #argument: ::redrive::PerConsumer + ::redrive::FromDelivery<#state> + ::core::clone::Clone + ::core::marker::Send);
        require(argument, &format!("argument_{index}"), bound);
    }
    if let Some(item) = &batch {
        let bound = quote_spanned!(item.span()=>
            #item: ::redrive::FromDelivery<#state> + ::core::marker::Send + ::core::marker::Sync);
        require(item, "item", bound);
    }
    if let (Some(_), ReturnType::Type(_, answer)) = (&sig.asyncness, &sig.output)
        && !matches!(**answer, Type::ImplTrait(_))
    {
        let wanted = if batch.is_some() { "IntoBatchOutcome" } else { "IntoOutcome" };
        let wanted = syn::Ident::new(wanted, answer.span());
        let bound = quote_spanned!(answer.span()=> #answer: ::redrive::#wanted);
        require(answer, "answer", bound);
    }
    let name = &sig.ident;
    let no_arguments = arguments.iter().map(|_| quote!(none()));
    let span = name.span();
    checks.extend(quote_spanned!(span=>
        #[allow(dead_code, unreachable_code, clippy::all, clippy::pedantic)]
        fn future() {
            fn none<T>() -> T {
                loop {}
            }
            fn the_future_of_a_handler_must_be_send<F: ::core::future::Future + ::core::marker::Send + 'static>(_: F) {}
            the_future_of_a_handler_must_be_send(#name(#(#no_arguments),*));
        }
    ));
    Ok(checks)
}

fn answers_with_a_future(output: &ReturnType) -> bool {
    // `impl Future<…>`, `Pin<Box<dyn Future<…>>>`, `BoxFuture<…>`: told by the name.
    matches!(output, ReturnType::Type(_, answer) if quote!(#answer).to_string().contains("Future"))
}

fn argument(input: &FnArg) -> syn::Result<Type> {
    match input {
        FnArg::Receiver(receiver) => Err(Error::new(
            receiver.span(),
            "a handler has no `self`: take it as `State<Self>`, or write a function beside the type",
        )),
        FnArg::Typed(argument) => match &*argument.ty {
            Type::Reference(reference) => Err(Error::new(
                reference.span(),
                "the arguments of a handler are owned: `String` in place of `&str`, `Bytes` in place of `&[u8]`",
            )),
            owned => Ok(owned.clone()),
        },
    }
}

/// The state that the arguments ask for.
fn state_of(arguments: &[Type]) -> syn::Result<Type> {
    let mut states: Vec<_> = arguments.iter().filter_map(|argument| inside(argument, "State")).collect();
    states.dedup_by_key(|state| quote!(#state).to_string());
    match &states[..] {
        [] => Ok(syn::parse_quote!(())),
        [state] => Ok(state.clone()),
        [.., last] => Err(Error::new(
            last.span(),
            "several parts of a state: name the whole of it, `#[debug_handler(state = App)]`",
        )),
    }
}

/// The `T` of `name<T>`, by whichever path.
fn inside(ty: &Type, name: &str) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(inside) => Some(inside.clone()),
        _ => None,
    }
}

/// `state = App`, or nothing.
struct Options {
    state: Option<Type>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            return Ok(Self { state: None });
        }
        let name: syn::Ident = input.parse()?;
        if name != "state" {
            return Err(Error::new(name.span(), "the only option is `state = App`"));
        }
        input.parse::<Token![=]>()?;
        let state = input.parse()?;
        if input.is_empty() {
            Ok(Self { state: Some(state) })
        } else {
            Err(Error::new(Span::call_site(), "the only option is `state = App`"))
        }
    }
}
