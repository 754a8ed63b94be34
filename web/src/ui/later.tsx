import { type ComponentType, h } from "preact";
import { useEffect, useState } from "preact/hooks";
import { problem } from "./toast";

/** A component whose code is fetched when it is first drawn: what nobody looks at is not sent. */
export function later<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Later(props: P) {
    const [isLoaded, setLoaded] = useState(loaded !== null);
    useEffect(() => {
      if (isLoaded) return;
      load().then((component) => {
        loaded = component;
        setLoaded(true);
      }, problem);
    }, []);
    return loaded ? h(loaded, props) : <p class="loading">…</p>;
  };
}
